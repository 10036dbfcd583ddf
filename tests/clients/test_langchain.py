"""LangChain's OpenAI client: messages, streams, tools and structured output."""

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI
from pydantic import BaseModel
from scripted_server import ScriptedServerTest


class Weather(BaseModel):
    """What the weather is."""

    town: str
    degrees: int


@tool
def weather(city: str) -> str:
    """The weather of a city."""
    return f"rain in {city}"


class LangChainTest(ScriptedServerTest):
    def setUp(self):
        self.model = ChatOpenAI(model="tiny", base_url=self.address + "/v1", api_key="none", max_retries=0)

    def test_invoke_and_stream(self):
        answer = self.model.invoke("KEY:hello")
        self.assertEqual(answer.content, "Grüße, 世界 😊!")
        self.assertGreater(answer.usage_metadata["output_tokens"], 5)
        pieces = [chunk.content for chunk in self.model.stream("KEY:hello")]
        self.assertEqual("".join(pieces), answer.content)
        self.assertGreater(len(pieces), 3)

    def test_a_tool_loop(self):
        model = self.model.bind_tools([weather])
        messages = [HumanMessage("KEY:weather")]
        for _ in range(5):
            answer = model.invoke(messages)
            messages.append(answer)
            if not answer.tool_calls:
                break
            for call in answer.tool_calls:
                messages.append(ToolMessage(weather.invoke(call["args"]), tool_call_id=call["id"]))
        self.assertEqual(answer.content, "Rain in both.")
        results = [m.content for m in messages if isinstance(m, ToolMessage)]
        self.assertEqual(results, ["rain in Oslo", "rain in Rome"])

    def test_structured_output(self):
        model = self.model.with_structured_output(Weather, method="json_schema")
        self.assertEqual(model.invoke("KEY:json"), Weather(town="Oslo", degrees=4))
