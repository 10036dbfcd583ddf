"""/v1/responses and /v1/messages over a real small model: the same replies as from the chat route,
streamed and whole, tools and schemas enforced. All that needs no real model is in
test_agent_apis_scripted.py."""

import json

import api_streams
from harness import need_qwen
from test_chat_api import ChatServerTest

FUNCTION = {
    "name": "weather",
    "description": "The weather of a city",
    "parameters": {
        "type": "object",
        "properties": {"city": {"type": "string", "maxLength": 30}},
        "required": ["city"],
    },
}
SCHEMA = {
    "type": "object",
    "properties": {"kind": {"enum": ["cat", "dog"]}, "legs": {"type": "integer", "minimum": 0, "maximum": 9}},
    "required": ["kind", "legs"],
}


def without(value, *names):
    return {key: item for key, item in value.items() if key not in names}


class AgentApisTest(ChatServerTest):
    @staticmethod
    def model():
        return need_qwen()

    flags = ("--context", "1024")

    def respond(self, input, expect=200, **fields):
        body = {"input": input, "max_output_tokens": 16, "temperature": 0, **fields}
        raw = self.post("/v1/responses", body, expect)
        if fields.get("stream") and expect == 200:
            return api_streams.response_of(api_streams.parse(raw))
        return json.loads(raw)

    def message(self, content, expect=200, **fields):
        messages = content if isinstance(content, list) else [{"role": "user", "content": content}]
        body = {"messages": messages, "max_tokens": 16, "temperature": 0, **fields}
        raw = self.post("/v1/messages", body, expect)
        if fields.get("stream") and expect == 200:
            return api_streams.message_of(api_streams.parse(raw))
        return json.loads(raw)

    # ---- All three routes

    def test_all_routes_give_the_same_reply(self):
        prompt = "Name three colours."
        chat = self.chat(prompt, temperature=0)
        text = chat["choices"][0]["message"]["content"]
        response = self.respond(prompt)
        message = self.message(prompt)
        self.assertEqual(response["output"][0]["content"][0]["text"], text)
        self.assertEqual(message["content"], [{"type": "text", "text": text}])
        for answer in (response, message):
            for key in ("token_sha", "prompt_sha", "arithmetic_id", "model_sha"):
                self.assertEqual(answer["invar"][key], chat["invar"][key])
            self.assertEqual(answer["invar"]["warnings"], [])
        self.assertEqual(response["usage"]["input_tokens"], chat["usage"]["prompt_tokens"])
        self.assertEqual(response["usage"]["output_tokens"], chat["usage"]["completion_tokens"])
        usage = message["usage"]
        self.assertEqual(usage["input_tokens"] + usage["cache_read_input_tokens"], chat["usage"]["prompt_tokens"])
        self.assertEqual(usage["output_tokens"], chat["usage"]["completion_tokens"])
        body = {"input": prompt, "tools": [{"type": "function", **FUNCTION}]}
        count = json.loads(self.post("/v1/responses/input_tokens", body))
        self.assertEqual(count["object"], "response.input_tokens")
        self.assertEqual(count["input_tokens"], self.respond(prompt, tools=body["tools"])["usage"]["input_tokens"])
        body = {"messages": [{"role": "user", "content": prompt}], "system": "Be brief."}
        count = json.loads(self.post("/v1/messages/count_tokens", body))
        usage = self.message(prompt, system="Be brief.")["usage"]
        self.assertEqual(count, {"input_tokens": usage["input_tokens"] + usage["cache_read_input_tokens"]})

    def test_streams_join_to_the_whole_answer(self):
        for fields in ({"temperature": 1.2, "seed": 5}, {"seed": 7, "stop": [" a", "."]}):
            whole = self.respond("Say 你好 and smile.", **fields)
            streamed = self.respond("Say 你好 and smile.", stream=True, **fields)
            for response in (whole, streamed):
                for item in response["output"]:
                    self.assertRegex(item.pop("id"), r"^msg_[A-Za-z0-9]{24}$")
            ignored = ("id", "created_at", "completed_at", "timings", "usage", "invar")
            self.assertEqual(without(whole, *ignored), without(streamed, *ignored))
            self.assertEqual(whole["invar"]["token_sha"], streamed["invar"]["token_sha"])
            if "stop" in fields:
                fields = {**fields, "stop_sequences": fields["stop"]}
                del fields["stop"]
            whole = self.message("Say 你好 and smile.", **fields)
            streamed = self.message("Say 你好 and smile.", stream=True, **fields)
            ignored = ("id", "timings", "usage", "invar")
            self.assertEqual(without(whole, *ignored), without(streamed, *ignored))
            self.assertEqual(whole["invar"]["token_sha"], streamed["invar"]["token_sha"])
            self.assertEqual(whole["usage"]["output_tokens"], streamed["usage"]["output_tokens"])

    # ---- Responses

    def test_response_logprobs(self):
        fields = {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
        whole = self.respond("Count: one, two,", **fields)
        (part,) = whole["output"][0]["content"]
        self.assertEqual("".join(entry["token"] for entry in part["logprobs"]), part["text"])
        self.assertTrue(all(len(entry["top_logprobs"]) == 2 for entry in part["logprobs"]))
        streamed = self.respond("Count: one, two,", stream=True, **fields)
        self.assertEqual(streamed["output"][0]["content"], whole["output"][0]["content"])

    def test_response_formats(self):
        form = {"type": "json_schema", "name": "pet", "schema": SCHEMA}
        response = self.respond(
            "Describe a pet.", text={"format": form}, max_output_tokens=60, seed=3, temperature=1.5, stream=True
        )
        self.assertEqual(response["status"], "completed")
        self.assertEqual(set(json.loads(response["output"][0]["content"][0]["text"])), {"kind", "legs"})
        self.assertEqual(response["text"], {"format": form})

    def test_response_tools(self):
        tools = [
            {"type": "function", **FUNCTION},
            {"type": "web_search"},
            {"type": "custom", "name": "shell_line", "description": "Runs a shell line"},
            {"type": "namespace", "name": "mcp__maps", "tools": [{"type": "function", **FUNCTION, "name": "look"}]},
        ]
        ask = {"tools": tools, "max_output_tokens": 60, "parallel_tool_calls": False}
        whole = self.respond("What is the weather in Oslo?", tool_choice="required", **ask)
        streamed = self.respond("What is the weather in Oslo?", tool_choice="required", stream=True, **ask)
        (call,) = whole["output"]
        self.assertEqual((call["type"], call["name"], call["status"]), ("function_call", "weather", "completed"))
        self.assertRegex(call["id"], r"^fc_[A-Za-z0-9]{24}$")
        self.assertRegex(call["call_id"], r"^call_[A-Za-z0-9]{24}$")
        self.assertIn("city", json.loads(call["arguments"]))
        self.assertNotIn("namespace", call)
        self.assertEqual(streamed["output"][0]["arguments"], call["arguments"])
        self.assertEqual([w["code"] for w in whole["invar"]["warnings"]], ["tool_dropped"])
        self.assertEqual(whole["status"], "completed")

        choice = {"type": "custom", "name": "shell_line"}
        (call,) = self.respond("List the files here.", tool_choice=choice, stream=True, **ask)["output"]
        self.assertEqual((call["type"], call["name"]), ("custom_tool_call", "shell_line"))
        self.assertRegex(call["id"], r"^ctc_[A-Za-z0-9]{24}$")
        self.assertTrue(call["input"] and not call["input"].startswith("{"), call)

        choice = {"type": "function", "name": "look", "namespace": "mcp__maps"}
        (call,) = self.respond("Look at Oslo.", tool_choice=choice, stream=True, **ask)["output"]
        self.assertEqual((call["name"], call["namespace"]), ("look", "mcp__maps"))

        items = [
            {"role": "user", "content": "What is the weather in Oslo?"},
            call,
            {"type": "function_call_output", "call_id": call["call_id"], "output": "Rain, 4 degrees"},
        ]
        answer = self.respond(items, tools=tools, stream=True)
        self.assertEqual(answer["output"][0]["type"], "message")

    # ---- Messages

    def test_a_message_tool_loop_of_three_turns(self):
        tools = [
            {"name": "weather", "description": "The weather of a city", "input_schema": FUNCTION["parameters"]},
            {"type": "bash_20250124", "name": "bash"},
        ]
        messages = [{"role": "user", "content": "What is the weather in Oslo and in Rome?"}]
        for turn in range(3):
            ask = {"tools": tools, "max_tokens": 60}
            if turn < 2:
                ask["tool_choice"] = {"type": "tool", "name": "weather"}
            whole = self.message(messages, **ask)
            streamed = self.message(messages, stream=True, **ask)
            self.assertEqual(whole["invar"]["token_sha"], streamed["invar"]["token_sha"])
            self.assertEqual(whole["invar"]["warnings"][0]["code"], "tool_dropped")
            if turn == 2:
                self.assertIn(whole["stop_reason"], ("end_turn", "tool_use", "max_tokens"))
                break
            self.assertEqual(whole["stop_reason"], "tool_use")
            (call,) = whole["content"]
            self.assertEqual((call["type"], call["name"]), ("tool_use", "weather"))
            self.assertRegex(call["id"], r"^toolu_[A-Za-z0-9]{24}$")
            self.assertEqual(call["input"], streamed["content"][0]["input"])
            self.assertEqual(set(call["input"]), {"city"})
            messages += [
                {"role": "assistant", "content": whole["content"]},
                {"role": "user", "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "Rain"}]},
            ]

    def test_message_endings(self):
        text = self.message("Count from one to nine in words.", max_tokens=30)["content"][0]["text"]
        stop = text[10:14]
        message = self.message("Count from one to nine in words.", max_tokens=30, stop_sequences=[stop])
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("stop_sequence", stop))
        self.assertEqual(message["content"][0]["text"], text[: text.index(stop)])
        for stream in (False, True):
            message = self.message("Hi", max_tokens=0, stream=stream)
            self.assertEqual((message["content"], message["stop_reason"]), ([], "max_tokens"))
            self.assertEqual(message["usage"]["output_tokens"], 0)

    def test_a_begun_message_is_continued(self):
        messages = [
            {"role": "user", "content": "What is the capital of France?"},
            {"role": "assistant", "content": "The capital of France is the city of"},
        ]
        text = self.message(messages)["content"][0]["text"]
        self.assertTrue(text.startswith(" Paris"), text)

    def test_message_formats(self):
        config = {"format": {"type": "json_schema", "schema": SCHEMA}}
        message = self.message("Describe a pet.", output_config=config, max_tokens=60, temperature=1.5, seed=2)
        self.assertEqual(message["stop_reason"], "end_turn")
        self.assertEqual(set(json.loads(message["content"][0]["text"])), {"kind", "legs"})
        config["format"]["schema"] = {"properties": {"a": {"not": {}}}}
        error = self.message("x", 400, output_config=config)["error"]
        self.assertRegex(error["message"], r"^unsupported keyword 'not' at #/properties/a: ")
