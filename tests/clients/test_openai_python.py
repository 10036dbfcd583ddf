"""The official openai package: chat, completions and Responses, whole and streamed."""

import json

import openai
from pydantic import BaseModel
from scripted_server import ScriptedServerTest

WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string"}},
            "required": ["city"],
            "additionalProperties": False,
        },
        "strict": True,
    },
}
FLAT_WEATHER = {"type": "function", **WEATHER["function"]}
HELLO = "Grüße, 世界 😊!"


class Weather(BaseModel):
    town: str
    degrees: int


def user(text):
    return [{"role": "user", "content": text}]


class OpenAiTest(ScriptedServerTest):
    def setUp(self):
        self.client = openai.OpenAI(base_url=self.address + "/v1", api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def chat(self, key, **fields):
        return self.client.chat.completions.create(model="tiny", messages=user("KEY:" + key), **fields)

    def test_chat(self):
        answer = self.chat("hello", seed=7)
        self.assertEqual(answer.choices[0].message.content, HELLO)
        self.assertEqual(answer.choices[0].finish_reason, "stop")
        self.assertEqual(answer.usage.total_tokens, answer.usage.prompt_tokens + answer.usage.completion_tokens)
        self.assertEqual(answer.model_extra["invar"]["seed"], 7)

    def test_chat_stream(self):
        pieces, usage = [], None
        for chunk in self.chat("hello", stream=True, stream_options={"include_usage": True}):
            pieces += [c.delta.content or "" for c in chunk.choices]
            usage = chunk.usage or usage
        self.assertEqual("".join(pieces), HELLO)
        self.assertGreater(usage.completion_tokens, 5)

    def test_the_accumulator_with_three_choices(self):
        with self.client.chat.completions.stream(model="tiny", messages=user("KEY:hello"), n=3) as stream:
            for _ in stream:
                pass
            final = stream.get_final_completion()
        self.assertEqual([c.index for c in final.choices], [0, 1, 2])
        self.assertEqual({c.message.content for c in final.choices}, {HELLO})
        self.assertEqual({c.finish_reason for c in final.choices}, {"stop"})

    def test_reasoning(self):
        message = self.chat("think").choices[0].message
        self.assertEqual((message.content, message.reasoning_content), ("Blue.", "Sky colour."))

    def test_a_tool_loop_of_three_turns(self):
        messages = user("KEY:weather")
        cities = []
        for _ in range(5):
            answer = self.client.chat.completions.create(model="tiny", messages=messages, tools=[WEATHER])
            choice = answer.choices[0]
            messages.append(choice.message)
            if choice.finish_reason != "tool_calls":
                break
            for call in choice.message.tool_calls:
                cities.append(json.loads(call.function.arguments)["city"])
                messages.append({"role": "tool", "tool_call_id": call.id, "content": "rain"})
        self.assertEqual(cities, ["Oslo", "Rome"])
        self.assertEqual(choice.message.content, "Rain in both.")

    def test_streamed_calls_through_the_accumulator(self):
        with self.client.chat.completions.stream(model="tiny", messages=user("KEY:two"), tools=[WEATHER]) as stream:
            done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
            final = stream.get_final_completion()
        self.assertEqual([e.parsed_arguments["city"] for e in done], ["Oslo", "Rome"])
        self.assertEqual(final.choices[0].finish_reason, "tool_calls")
        ids = [call.id for call in final.choices[0].message.tool_calls]
        self.assertEqual(len(set(ids)), 2)

    def test_a_schema_from_a_class(self):
        answer = self.client.chat.completions.parse(model="tiny", messages=user("KEY:json"), response_format=Weather)
        self.assertEqual(answer.choices[0].message.parsed, Weather(town="Oslo", degrees=4))

    def test_logprobs(self):
        entries = self.chat("hello", logprobs=True, top_logprobs=2).choices[0].logprobs.content
        joined = b"".join(bytes(entry.bytes) for entry in entries)
        self.assertEqual(joined.decode(), HELLO)

    def test_completions(self):
        answer = self.client.completions.create(model="tiny", prompt="KEY:hello", max_tokens=100)
        self.assertEqual(answer.choices[0].text, HELLO)
        stream = self.client.completions.create(model="tiny", prompt="KEY:hello", stream=True)
        self.assertEqual("".join(c.choices[0].text for c in stream if c.choices), HELLO)

    def test_responses(self):
        answer = self.client.responses.create(model="tiny", input="KEY:think")
        self.assertEqual(answer.output_text, "Blue.")
        self.assertEqual([item.type for item in answer.output], ["reasoning", "message"])
        self.assertEqual(answer.status, "completed")

    def test_a_responses_stream_replays_into_the_whole(self):
        with self.client.responses.stream(model="tiny", input="KEY:weather", tools=[FLAT_WEATHER]) as stream:
            numbers = [event.sequence_number for event in stream]
            final = stream.get_final_response()
        self.assertEqual(numbers, list(range(len(numbers))))
        whole = self.client.responses.create(model="tiny", input="KEY:weather", tools=[FLAT_WEATHER])
        for one, other in zip(final.output, whole.output, strict=True):
            self.assertEqual(one.type, other.type)
            if one.type == "function_call":
                self.assertEqual((one.name, one.arguments), (other.name, other.arguments))
            else:
                self.assertEqual(one.content[0].text, other.content[0].text)

    def test_a_responses_tool_loop(self):
        items = [{"role": "user", "content": "KEY:weather"}]
        for _ in range(5):
            answer = self.client.responses.create(model="tiny", input=items, tools=[FLAT_WEATHER])
            items += [item.model_dump(exclude_none=True) for item in answer.output]
            calls = [item for item in answer.output if item.type == "function_call"]
            if not calls:
                break
            items += [{"type": "function_call_output", "call_id": c.call_id, "output": "rain"} for c in calls]
        self.assertEqual(answer.output_text, "Rain in both.")

    def test_a_responses_schema(self):
        answer = self.client.responses.parse(model="tiny", input="KEY:json", text_format=Weather)
        self.assertEqual(answer.output_parsed, Weather(town="Oslo", degrees=4))

    def test_errors_are_exceptions_of_their_kind(self):
        with self.assertRaises(openai.BadRequestError) as caught:
            self.chat("hello", temperature=9)
        self.assertEqual(caught.exception.code, "out_of_range")
        self.assertEqual(caught.exception.param, "temperature")
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("nobody")
        with self.assertRaises(openai.APIError) as caught:
            for _ in self.chat("fault", stream=True):
                pass
        self.assertIn("script", str(caught.exception).lower())
        with self.assertRaises(openai.InternalServerError):
            self.chat("fault")

    def test_models(self):
        (model,) = self.client.models.list().data
        self.assertEqual(model.id, "tiny")

    def test_a_stream_that_is_left_is_cancelled(self):
        stream = self.chat("endless", stream=True)
        next(iter(stream))
        stream.close()
        self.wait_idle()
        self.assertEqual(self.chat("hello").choices[0].message.content, HELLO)
