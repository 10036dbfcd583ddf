"""D3: tool calls do not depend on how the reply was cut."""

import json
import random
import unittest

from case_harness import CaseTest, body_of, cut, steps_of

ARGUMENTS = {"a": [{"b": '}{"é'}], "c": ""}
TEXT = (
    r'<tool_call>{"name":"f","arguments":{"a":[{"b":"}{\"\u00e9"}],"c":""}}</tool_call>'
    r'<tool_call>{"name":"ping","arguments":{}}</tool_call>'
)
LAID_OUT = (
    "Let me look.\n<tool_call>\n"
    r'{"name": "f", "arguments": {"a": [{"b": "}{\"\u00e9"}], "c": ""}}'
    '\n</tool_call>\n<tool_call>\n{"name": "ping", "arguments": {}}\n</tool_call>\n'
)
SCHEMA = {
    "type": "object",
    "properties": {
        "a": {"type": "array", "items": {"type": "object", "properties": {"b": {"type": "string"}}}},
        "c": {"type": "string"},
    },
}
TOOLS = [
    {"type": "function", "function": {"name": "f", "description": "d", "parameters": SCHEMA}},
    {"type": "function", "function": {"name": "ping", "parameters": {"type": "object", "properties": {}}}},
]
FLAT_TOOLS = [{"type": "function", **tool["function"]} for tool in TOOLS]
MESSAGES_TOOLS = [
    {"name": "f", "description": "d", "input_schema": SCHEMA},
    {"name": "ping", "input_schema": {"type": "object", "properties": {}}},
]


def scripts():
    rng = random.Random(3)
    made = {}
    for name, text in (("plain", TEXT), ("laid", LAID_OUT)):
        raw = text.encode()
        for size in (1, 2, 3, 7, 50, len(raw)):
            made[f"{name}-{size}"] = {"text": text, "cut": size}
        made[f"{name}-together"] = [{"text": text, "cut": 4}]
        for i in range(10):
            made[f"{name}-random{i}"] = steps_of(*cut(raw, *rng.sample(range(1, len(raw)), 10)))
    # Everything that looks like a call and is none stays content.
    made["text"] = {"text": "a <tool_call b </tool_call> <tool", "cut": 1}
    made["think"] = {"text": "<think>I may <tool_call>not</tool_call></think>" + TEXT, "cut": 5}
    made["open"] = {"text": TEXT[: TEXT.index('"c"')], "cut": 3}
    return made


class ToolsTest(CaseTest):
    script = scripts()

    def chat(self, key, **fields):
        return body_of("/v1/chat/completions", "KEY:" + key, tools=TOOLS, **fields)

    def check_calls(self, calls):
        self.assertEqual([call["function"]["name"] for call in calls], ["f", "ping"])
        self.assertEqual(json.loads(calls[0]["function"]["arguments"]), ARGUMENTS)
        self.assertEqual(calls[1]["function"]["arguments"], "{}")
        self.assertEqual([call["type"] for call in calls], ["function", "function"])
        ids = {call["id"] for call in calls}
        self.assertEqual(len(ids), 2)
        self.assertTrue(all(i.startswith("call_") for i in ids))

    def streamed(self, body):
        """The calls of a stream put together as clients do, its content and its ending."""
        calls, content, reason = [], "", None
        for event in self.stream("/v1/chat/completions", body):
            choice = event.data["choices"][0]
            content += choice["delta"].get("content") or ""
            reason = choice["finish_reason"] or reason
            for delta in choice["delta"].get("tool_calls", []):
                if delta["index"] == len(calls):
                    calls.append({"id": delta["id"], "type": delta["type"], "function": dict(delta["function"])})
                else:
                    self.assertEqual(delta["index"], len(calls) - 1)
                    self.assertNotIn("id", delta)
                    calls[-1]["function"]["arguments"] += delta["function"]["arguments"]
        return calls, content, reason

    def test_the_case(self):
        for key in self.script:
            if "-" not in key:
                continue
            with self.subTest(key):
                choice = self.ok("/v1/chat/completions", self.chat(key))["choices"][0]
                self.assertEqual(choice["finish_reason"], "tool_calls")
                calls = choice["message"]["tool_calls"]
                self.check_calls(calls)
                content = "Let me look." if key.startswith("laid") else None
                self.assertEqual(choice["message"]["content"], content)
                streamed, text, reason = self.streamed(self.chat(key))
                self.check_calls(streamed)
                self.assertEqual(reason, "tool_calls")
                self.assertEqual(text, content or "")
                for whole, part in zip(calls, streamed):
                    self.assertEqual(whole["function"], part["function"])

    def test_what_is_no_call_is_content(self):
        body = self.chat("text")
        choice = self.ok("/v1/chat/completions", body)["choices"][0]
        self.assertEqual(choice["message"]["content"], self.script["text"]["text"])
        self.assertEqual(choice["finish_reason"], "stop")
        self.assertEqual(self.streamed(body), ([], self.script["text"]["text"], "stop"))
        # Without tools, or with none wanted, nothing is looked for.
        for body in (
            body_of("/v1/chat/completions", "KEY:plain-7"),
            self.chat("plain-7", tool_choice="none"),
        ):
            message = self.ok("/v1/chat/completions", body)["choices"][0]["message"]
            self.assertNotIn("tool_calls", message)
            self.assertEqual(message["content"], TEXT)

    def test_reasoning_holds_no_calls(self):
        choice = self.ok("/v1/chat/completions", self.chat("think"))["choices"][0]
        self.check_calls(choice["message"]["tool_calls"])
        self.assertEqual(choice["message"]["reasoning_content"], "I may <tool_call>not</tool_call>")

    def test_a_call_that_is_cut_off(self):
        for key, fields, ends in (("plain-3", {"max_tokens": 20}, "length"), ("open", {}, "tool_calls")):
            body = self.chat(key, **fields)
            choice = self.ok("/v1/chat/completions", body)["choices"][0]
            calls, text, reason = self.streamed(body)
            self.assertEqual((choice["finish_reason"], reason), (ends, ends))
            whole = choice["message"]["tool_calls"]
            self.assertEqual([c["function"] for c in whole], [c["function"] for c in calls])
            self.assertEqual([c["function"]["name"] for c in whole], ["f"])
            self.assertEqual(choice["message"]["content"] or "", text)

    def test_messages(self):
        for key in ("plain-1", "plain-7", "plain-together", "laid-3", "laid-random1"):
            body = body_of("/v1/messages", "KEY:" + key, tools=MESSAGES_TOOLS)
            answer = self.ok("/v1/messages", body)
            self.assertEqual(answer["stop_reason"], "tool_use")
            uses = [block for block in answer["content"] if block["type"] == "tool_use"]
            self.assertEqual([(u["name"], u["input"]) for u in uses], [("f", ARGUMENTS), ("ping", {})])
            parts = {}
            for event in self.stream("/v1/messages", body):
                data = event.data
                if data["type"] == "content_block_start" and data["content_block"]["type"] == "tool_use":
                    parts[data["index"]] = ""
                elif data.get("delta", {}).get("type") == "input_json_delta":
                    parts[data["index"]] += data["delta"]["partial_json"]
            self.assertEqual([json.loads(p or "{}") for p in parts.values()], [ARGUMENTS, {}])

    def test_responses(self):
        for key in ("plain-2", "plain-50", "laid-7", "laid-random2"):
            body = body_of("/v1/responses", "KEY:" + key, tools=FLAT_TOOLS)
            answer = self.ok("/v1/responses", body)
            calls = [item for item in answer["output"] if item["type"] == "function_call"]
            self.assertEqual([call["name"] for call in calls], ["f", "ping"])
            self.assertEqual([json.loads(call["arguments"]) for call in calls], [ARGUMENTS, {}])
            self.assertTrue(all(call["call_id"].startswith("call_") for call in calls))
            parts = {}
            for event in self.stream("/v1/responses", body):
                if event.data["type"] == "response.function_call_arguments.delta":
                    index = event.data["output_index"]
                    parts[index] = parts.get(index, "") + event.data["delta"]
            self.assertEqual(list(parts.values()), [call["arguments"] for call in calls])


if __name__ == "__main__":
    unittest.main()
