"""The official anthropic package: Messages, whole and streamed, tools, errors, counts."""

import anthropic
from scripted_server import ScriptedServerTest

WEATHER = {
    "name": "weather",
    "description": "The weather of a city",
    "input_schema": {
        "type": "object",
        "properties": {"city": {"type": "string"}},
        "required": ["city"],
    },
}
HELLO = "Grüße, 世界 😊!"


def user(text):
    return [{"role": "user", "content": text}]


class AnthropicTest(ScriptedServerTest):
    def setUp(self):
        self.client = anthropic.Anthropic(base_url=self.address, api_key="none", max_retries=0)
        self.addCleanup(self.client.close)

    def create(self, key, **fields):
        return self.client.messages.create(model="tiny", max_tokens=500, messages=user("KEY:" + key), **fields)

    def test_a_message(self):
        answer = self.create("hello", system="Be brief.")
        self.assertEqual(answer.content[0].text, HELLO)
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("end_turn", None))
        self.assertGreater(answer.usage.output_tokens, 5)

    def test_a_stream(self):
        with self.client.messages.stream(model="tiny", max_tokens=500, messages=user("KEY:hello")) as stream:
            text = "".join(stream.text_stream)
            final = stream.get_final_message()
        self.assertEqual((text, final.content[0].text), (HELLO, HELLO))
        self.assertEqual(final.stop_reason, "end_turn")

    def test_thinking(self):
        with self.client.messages.stream(model="tiny", max_tokens=500, messages=user("KEY:think")) as stream:
            kinds = [e.type for e in stream if e.type in ("thinking", "text", "signature")]
            final = stream.get_final_message()
        self.assertEqual([block.type for block in final.content], ["thinking", "text"])
        self.assertEqual(final.content[0].thinking, "Sky colour.")
        self.assertLess(kinds.index("thinking"), kinds.index("text"))

    def test_a_tool_loop_of_three_turns(self):
        messages = user("KEY:weather")
        cities = []
        for _ in range(5):
            with self.client.messages.stream(model="tiny", max_tokens=500, messages=messages, tools=[WEATHER]) as stream:
                answer = stream.get_final_message()
            messages.append({"role": "assistant", "content": answer.content})
            if answer.stop_reason != "tool_use":
                break
            uses = [block for block in answer.content if block.type == "tool_use"]
            cities += [block.input["city"] for block in uses]
            results = [{"type": "tool_result", "tool_use_id": block.id, "content": "rain"} for block in uses]
            messages.append({"role": "user", "content": results})
        self.assertEqual(cities, ["Oslo", "Rome"])
        self.assertEqual(answer.content[-1].text, "Rain in both.")

    def test_two_calls_in_one_message(self):
        answer = self.create("two", tools=[WEATHER], tool_choice={"type": "any"})
        self.assertEqual([block.input["city"] for block in answer.content], ["Oslo", "Rome"])
        self.assertEqual(answer.stop_reason, "tool_use")

    def test_stop_sequences(self):
        answer = self.create("hello", stop_sequences=["世"])
        self.assertEqual(answer.content[0].text, "Grüße, ")
        self.assertEqual((answer.stop_reason, answer.stop_sequence), ("stop_sequence", "世"))

    def test_counts(self):
        fields = {"messages": user("KEY:hello"), "system": "Be brief.", "tools": [WEATHER]}
        count = self.client.messages.count_tokens(model="tiny", **fields)
        answer = self.client.messages.create(model="tiny", max_tokens=9, **fields)
        usage = answer.usage
        self.assertEqual(count.input_tokens, usage.input_tokens + usage.cache_read_input_tokens)
        self.assertEqual(answer.stop_reason, "max_tokens")

    def test_errors_are_exceptions_of_their_kind(self):
        with self.assertRaises(anthropic.BadRequestError) as caught:
            self.client.messages.create(model="tiny", max_tokens=5, messages=[])
        self.assertEqual(caught.exception.body["error"]["type"], "invalid_request_error")
        with self.assertRaises(anthropic.APIStatusError):
            with self.client.messages.stream(model="tiny", max_tokens=500, messages=user("KEY:fault")) as stream:
                stream.get_final_message()
        with self.assertRaises(anthropic.InternalServerError):
            self.create("fault")
