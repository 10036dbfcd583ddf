"""/v1/responses and /v1/messages on the scripted backend: what a reply is made of, in which order
its events come, how it ends and fails. Takes seconds; no model."""

import http.client
import json
import signal
import tempfile
import urllib.error
import urllib.request
from pathlib import Path

import api_streams
from harness import PATIENCE, ServerProcess
from test_chat_api import ChatServerTest


def call_text(name, arguments):
    return "<tool_call>\n" + json.dumps({"name": name, "arguments": arguments}) + "\n</tool_call>"


WEATHER = call_text("weather", {"city": "Oslo"})
LOOP = [
    {"text": "<think>Oslo first.</think>I look. " + WEATHER, "cut": 3},
    {"text": "<think>Now Rome.</think>" + call_text("weather", {"city": "Rome"}), "cut": 3},
    {"text": "Rain in both.", "cut": 3},
]
SCRIPT = {
    "scripts": {
        "blue": {"text": "<think>\nSky.\n</think>\n\nBlue.", "cut": 2},
        "plain": {"text": "Blue.", "cut": 2},
        "nothing": {"text": ""},
        "call": {"text": WEATHER, "cut": 5},
        "calls": {
            "text": "<think>Two.</think>Both. " + WEATHER + "\n" + call_text("ping", {}) + "Done?",
            "cut": 4,
        },
        "bare": {"text": '<tool_call>{"name":"ping","arguments":{}}</tool_call>', "cut": 4},
        "patch": {"text": call_text("patch", {"input": 'a "b"\n\u00e9\U0001f600'}), "cut": 3},
        "maps": {"text": call_text("mcp__maps__look", {"at": "x"}) + call_text("bare", {})},
        "loop": {"by_tool_results": LOOP},
        "silent": {"text": "a", "delay_ms": 2500},
        "endless": {"steps": [{"text": "a", "delay_ms": 20, "repeat": 100000}]},
        "fault": {"text": "Hello there.", "cut": 1, "fail_at_step": 4},
        "nan": {"text": "Hello there.", "cut": 1, "nan_at_step": 4},
        "first": {"text": "x", "fail_at_step": 0},
        "long": {"steps": [{"text": "ab", "repeat": 400}]},
        "smile": [{"pieces": ["f09f98", "8a"]}, {"pieces": ["21"]}],
        "stops": {"text": "one. two. three.", "cut": 2},
    }
}
TOOL_NAMES = {"weather": {"type": "object", "properties": {"city": {"type": "string"}}}, "ping": {"type": "object"}}
FUNCTIONS = [{"type": "function", "name": name, "parameters": schema} for name, schema in TOOL_NAMES.items()]
TOOLS = [{"name": name, "input_schema": schema} for name, schema in TOOL_NAMES.items()]
EVERY_TOOL = [
    *FUNCTIONS,
    {"type": "custom", "name": "patch"},
    {"type": "namespace", "name": "mcp__maps", "tools": [{"type": "function", "name": "look"}]},
    {"type": "namespace", "name": "functions", "tools": [{"type": "function", "name": "bare"}]},
]
RANDOM = ("id", "call_id", "created_at", "completed_at", "timings", "usage", "cached_tokens", "seed")


def plain(value):
    """Without ids, times and what the cache did."""
    if isinstance(value, dict):
        return {key: plain(item) for key, item in value.items() if key not in RANDOM}
    return [plain(item) for item in value] if isinstance(value, list) else value


class ScriptedTest(ChatServerTest):
    flags = ()

    @classmethod
    def start(cls):
        folder = tempfile.TemporaryDirectory(prefix="invar-script-")
        script = Path(folder.name) / "script.json"
        script.write_text(json.dumps(SCRIPT))
        server = ServerProcess(cls, "--backend", "scripted", "--script", script, *cls.flags).wait_ready()
        folder.cleanup()
        return server

    @classmethod
    def setUpClass(cls):
        cls.server = cls.start()
        cls.address = cls.server.address

    def events(self, path, body, **fields):
        return api_streams.parse(self.post(path, {**body, "stream": True, **fields}))

    def names(self, events):
        """Event names, equal neighbours once."""
        names = [name for name, _ in events]
        return [name for i, name in enumerate(names) if i == 0 or name != names[i - 1]]

    def responses(self, key, expect=200, **fields):
        """A response whole and one streamed; equal but for ids and times."""
        body = {"input": "KEY: " + key, **fields}
        whole = json.loads(self.post("/v1/responses", body, expect))
        streamed = api_streams.response_of(self.events("/v1/responses", body))
        self.assertEqual(plain(whole), plain(streamed))
        return streamed

    def messages(self, key, **fields):
        body = {"messages": [{"role": "user", "content": "KEY: " + key}], "max_tokens": 500, **fields}
        whole = json.loads(self.post("/v1/messages", body))
        streamed = api_streams.message_of(self.events("/v1/messages", body))
        self.assertEqual(plain(whole), plain(streamed))
        return streamed


class ResponsesTest(ScriptedTest):
    def test_order_of_events(self):
        opening = ["response.created", "response.in_progress"]
        message = [
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
        ]
        reasoning = [name.replace("output_text", "reasoning_text") for name in message]
        call = [
            "response.output_item.added",
            "response.function_call_arguments.delta",
            "response.function_call_arguments.done",
            "response.output_item.done",
        ]
        custom = [name.replace("function_call_arguments", "custom_tool_call_input") for name in call]
        empty = [name for name in message if not name.endswith("delta")]
        for key, items in {
            "blue": reasoning + message,
            "plain": message,
            "nothing": empty,
            "call": call,
            "calls": reasoning + message + call + call + message,
            "patch": custom,
            "maps": call + call,
        }.items():
            events = self.events("/v1/responses", {"input": "KEY: " + key, "tools": EVERY_TOOL})
            self.assertEqual(self.names(events), [*opening, *items, "response.completed"], key)

    def test_items(self):
        response = self.responses("blue")
        reasoning, message = response["output"]
        self.assertEqual(
            plain(reasoning),
            {
                "type": "reasoning",
                "status": "completed",
                "summary": [],
                "encrypted_content": None,
                "content": [{"type": "reasoning_text", "text": "Sky."}],
            },
        )
        self.assertEqual(
            plain(message),
            {
                "type": "message",
                "status": "completed",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "Blue.", "annotations": [], "logprobs": []}],
            },
        )
        self.assertGreater(response["usage"]["output_tokens_details"]["reasoning_tokens"], 0)
        self.assertEqual(response["object"], "response")
        self.assertEqual(response["error"], None)
        response = self.responses("nothing")
        self.assertEqual(response["output"][0]["content"][0]["text"], "")
        self.assertEqual(response["status"], "completed")

    def test_calls(self):
        response = self.responses("calls", tools=FUNCTIONS)
        kinds = [item["type"] for item in response["output"]]
        self.assertEqual(kinds, ["reasoning", "message", "function_call", "function_call", "message"])
        first, second = response["output"][2:4]
        self.assertEqual((first["name"], first["arguments"]), ("weather", '{"city": "Oslo"}'))
        self.assertEqual((second["name"], second["arguments"]), ("ping", "{}"))
        self.assertEqual(len({first["id"], first["call_id"], second["id"], second["call_id"]}), 4)
        self.assertEqual(response["output"][1]["content"][0]["text"], "Both.")
        (call,) = self.responses("patch", tools=EVERY_TOOL)["output"]
        self.assertEqual(
            plain(call),
            {"type": "custom_tool_call", "status": "completed", "name": "patch", "input": 'a "b"\n\u00e9\U0001f600'},
        )
        events = self.events("/v1/responses", {"input": "KEY: maps", "tools": EVERY_TOOL})
        seen = [data["item"] for name, data in events if "output_item" in name]
        seen += events[-1][1]["response"]["output"]
        self.assertEqual(
            [(item["name"], item.get("namespace")) for item in seen],
            2 * [("look", "mcp__maps")] + 2 * [("bare", None)] + [("look", "mcp__maps"), ("bare", None)],
        )

    def test_characters_are_whole(self):
        response = self.responses("smile")
        self.assertEqual(response["output"][0]["content"][0]["text"], "\U0001f60a!")

    def test_limits_cut_the_last_item(self):
        response = self.responses("blue", max_output_tokens=5)
        self.assertEqual(response["status"], "incomplete")
        self.assertEqual(response["incomplete_details"], {"reason": "max_output_tokens"})
        self.assertEqual(
            [(i["type"], i["status"]) for i in response["output"]], [("reasoning", "incomplete"), ("message", "incomplete")]
        )
        response = self.responses("calls", max_output_tokens=20, tools=FUNCTIONS)
        self.assertEqual(
            [(i["type"], i["status"]) for i in response["output"]],
            [("reasoning", "completed"), ("message", "completed"), ("function_call", "incomplete")],
        )
        self.assertTrue('{"city": "Oslo"}'.startswith(response["output"][2]["arguments"]))

    def test_a_tool_loop(self):
        items = [{"role": "user", "content": "KEY: loop"}]
        ask = {"tools": FUNCTIONS, "instructions": "Use tools.", "store": False, "include": ["reasoning.encrypted_content"]}
        cached = []
        for _ in range(3):
            whole = json.loads(self.post("/v1/responses", {"input": items, **ask}))
            streamed = api_streams.response_of(self.events("/v1/responses", {"input": items, **ask}))
            self.assertEqual(plain(whole["output"]), plain(streamed["output"]))
            cached.append(whole["usage"]["input_tokens_details"]["cached_tokens"])
            items += whole["output"]
            items += [
                {"type": "function_call_output", "call_id": item["call_id"], "output": "Rain"}
                for item in whole["output"]
                if item["type"] == "function_call"
            ]
        self.assertEqual(whole["output"][0]["content"][0]["text"], "Rain in both.")
        self.assertEqual(whole["invar"]["warnings"], [])
        self.assertTrue(cached[0] < cached[1] < cached[2], cached)  # each prompt begins like the last

    def test_faults(self):
        for key, code in (("fault", "server_error"), ("nan", "server_error")):
            error = json.loads(self.post("/v1/responses", {"input": "KEY: " + key}, 500))["error"]
            self.assertEqual(error["type"], "server_error")
            events = self.events("/v1/responses", {"input": "KEY: " + key})
            response = api_streams.response_of(events)
            self.assertEqual(events[-1][0], "response.failed")
            self.assertEqual(response["error"]["code"], code)
            self.assertEqual(response["usage"], None)
            self.assertIn("output_text.delta", str(self.names(events)))

    def test_a_fault_before_the_first_token(self):
        events = self.events("/v1/responses", {"input": "KEY: first"})
        self.assertEqual(self.names(events), ["response.created", "response.in_progress", "response.failed"])
        self.assertEqual(events[-1][1]["response"]["output"], [])

    def test_a_response_repeats_what_was_asked(self):
        fields = {
            "instructions": "Be brief.",
            "metadata": {"a": "b"},
            "user": "me",
            "top_p": 0.9,
            "temperature": 0.3,
            "prompt_cache_key": "k",
            "max_output_tokens": 90,
            "tools": FUNCTIONS,
            "tool_choice": "none",
            "text": {"format": {"type": "json_object"}, "verbosity": "low"},
            "reasoning": {"effort": None, "summary": "auto"},
            "safety_identifier": "s",
            "parallel_tool_calls": False,
        }
        response = self.responses("plain", **fields)
        for name, value in fields.items():
            self.assertEqual(response[name], value, name)
        response = self.responses("plain", store=True, foo=1, include=["reasoning.encrypted_content"])
        self.assertIs(response["store"], False)
        self.assertEqual(
            [(w["code"], w["param"]) for w in response["invar"]["warnings"]],
            [("ignored_field", "store"), ("ignored_field", "foo")],
        )

    def test_errors(self):
        def error(**fields):
            answer = json.loads(self.post("/v1/responses", {"input": "KEY: plain", **fields}, 400))
            self.assertEqual(set(answer["error"]), {"message", "type", "param", "code"})
            return answer["error"]["param"], answer["error"]["code"]

        self.assertEqual(error(temperature="hot"), ("temperature", "invalid_type"))
        self.assertEqual(error(stop=[""]), ("stop", "invalid_value"))
        self.assertEqual(error(previous_response_id="x"), ("previous_response_id", "unsupported_parameter"))
        schema = {"properties": {"a": {"not": {}}}}
        param, code = error(text={"format": {"type": "json_schema", "name": "x", "schema": schema}})
        self.assertEqual(code, "unsupported_schema")
        self.assertTrue(param.startswith("text.format"), param)
        strict = {"type": "function", "name": "f", "strict": True, "parameters": schema}
        param, code = error(tools=[{"type": "web_search"}, strict])
        self.assertEqual(code, "unsupported_schema")
        self.assertTrue(param.startswith("tools"), param)

    def test_requests_with_wrong_fields_do_not_begin_a_stream(self):
        error = json.loads(self.post("/v1/responses", {"stream": True}, 400))["error"]
        self.assertEqual((error["param"], error["code"]), ("input", "missing_field"))


class MessagesTest(ScriptedTest):
    def test_order_of_events(self):
        block = ["content_block_start", "content_block_delta", "content_block_stop"]
        for key, count in {"blue": 2, "plain": 1, "nothing": 0, "call": 1, "calls": 5, "bare": 1}.items():
            events = self.events(
                "/v1/messages", {"messages": [{"role": "user", "content": "KEY: " + key}], "max_tokens": 500, "tools": TOOLS}
            )
            self.assertEqual(self.names(events), ["message_start", *(block * count), "message_delta", "message_stop"])

    def test_blocks(self):
        message = self.messages("blue")
        self.assertEqual(
            message["content"], [{"type": "thinking", "thinking": "Sky.", "signature": ""}, {"type": "text", "text": "Blue."}]
        )
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("end_turn", None))
        self.assertEqual((message["type"], message["role"]), ("message", "assistant"))
        self.assertGreater(message["usage"]["output_tokens_details"]["thinking_tokens"], 0)
        self.assertEqual(message["usage"]["cache_creation_input_tokens"], 0)
        message = self.messages("blue", thinking={"type": "adaptive", "display": "omitted"})
        self.assertEqual(message["content"][0], {"type": "thinking", "thinking": "", "signature": ""})
        self.assertEqual(self.messages("nothing")["content"], [])

    def test_calls(self):
        message = self.messages("calls", tools=TOOLS)
        self.assertEqual(message["stop_reason"], "tool_use")
        self.assertEqual([block["type"] for block in message["content"]], ["thinking", "text", "tool_use", "tool_use", "text"])
        self.assertEqual(plain(message["content"][2]), {"type": "tool_use", "name": "weather", "input": {"city": "Oslo"}})
        events = self.events(
            "/v1/messages", {"messages": [{"role": "user", "content": "KEY: bare"}], "max_tokens": 500, "tools": TOOLS}
        )
        deltas = [data["delta"] for name, data in events if name == "content_block_delta"]
        self.assertEqual("".join(delta["partial_json"] for delta in deltas), "{}")

    def test_a_call_that_a_limit_cuts(self):
        body = {"messages": [{"role": "user", "content": "KEY: call"}], "max_tokens": 12, "tools": TOOLS}
        message = json.loads(self.post("/v1/messages", body))
        self.assertEqual(message["stop_reason"], "max_tokens")
        self.assertEqual(plain(message["content"]), [{"type": "tool_use", "name": "weather", "input": {}}])

    def test_endings(self):
        message = self.messages("stops", stop_sequences=[". th", "zz"])
        self.assertEqual((message["stop_reason"], message["stop_sequence"]), ("stop_sequence", ". th"))
        self.assertEqual(message["content"], [{"type": "text", "text": "one. two"}])
        self.assertEqual(self.messages("long", max_tokens=10)["stop_reason"], "max_tokens")
        for stream in (False, True):
            body = {"messages": [{"role": "user", "content": "KEY: blue"}], "max_tokens": 0, "stream": stream}
            raw = self.post("/v1/messages", body)
            message = api_streams.message_of(api_streams.parse(raw)) if stream else json.loads(raw)
            self.assertEqual((message["content"], message["stop_reason"]), ([], "max_tokens"))
            self.assertEqual(message["usage"]["output_tokens"], 0)

    def test_the_opening_event_knows_the_cache(self):
        body = {"messages": [{"role": "user", "content": "Once more, at length. " * 20 + "KEY: plain"}], "max_tokens": 500}
        for _ in range(2):
            events = self.events("/v1/messages", body)
            before, after = events[0][1]["message"]["usage"], events[-2][1]["usage"]
            for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens"):
                self.assertEqual(before[name], after[name])
            count = json.loads(self.post("/v1/messages/count_tokens", {"messages": body["messages"]}))
            self.assertEqual(before["input_tokens"] + before["cache_read_input_tokens"], count["input_tokens"])
        self.assertGreater(before["cache_read_input_tokens"], 0)

    def test_a_tool_loop_of_three_turns(self):
        messages = [{"role": "user", "content": "KEY: loop"}]
        ask = {"max_tokens": 500, "tools": TOOLS, "system": "Use tools."}
        for turn in range(3):
            body = {"messages": messages, **ask}
            whole = json.loads(self.post("/v1/messages", body))
            streamed = api_streams.message_of(self.events("/v1/messages", body))
            self.assertEqual(plain(whole["content"]), plain(streamed["content"]))
            calls = [block for block in whole["content"] if block["type"] == "tool_use"]
            self.assertEqual(whole["stop_reason"], "end_turn" if turn == 2 else "tool_use")
            self.assertEqual([call["input"]["city"] for call in calls], [["Oslo"], ["Rome"], []][turn])
            messages.append({"role": "assistant", "content": whole["content"]})
            messages.append(
                {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": call["id"], "content": "Rain"} for call in calls],
                }
            )
        self.assertEqual(whole["content"], [{"type": "text", "text": "Rain in both."}])
        self.assertEqual(whole["invar"]["warnings"], [])

    def test_faults(self):
        for key in ("fault", "nan"):
            body = {"messages": [{"role": "user", "content": "KEY: " + key}], "max_tokens": 500}
            answer = json.loads(self.post("/v1/messages", body, 500))
            self.assertEqual((answer["type"], answer["error"]["type"]), ("error", "api_error"))
            events = self.events("/v1/messages", body)
            self.assertEqual(self.names(events)[0], "message_start")
            name, data = events[-1]
            self.assertEqual((name, data["error"]["type"]), ("error", "api_error"))
            self.assertTrue(data["request_id"].startswith("req_"))
            self.assertNotIn("message_stop", self.names(events))

    def test_errors(self):
        def message(path="/v1/messages", **fields):
            body = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 5, **fields}
            answer = json.loads(self.post(path, body, 400))
            self.assertEqual(set(answer), {"type", "error", "request_id"})
            self.assertEqual(answer["type"], "error")
            self.assertEqual(set(answer["error"]), {"type", "message"})
            self.assertEqual(answer["error"]["type"], "invalid_request_error")
            return answer["error"]["message"]

        self.assertTrue(message(temperature="hot").startswith("temperature: must be"))
        self.assertEqual(message(max_tokens=None), "max_tokens: field required")
        self.assertTrue(message(stop_sequences=[""]).startswith("stop_sequences: "))
        self.assertTrue(message(tool_choice={"type": "any"}).startswith("tool_choice: "))
        bad = [{"name": "f", "input_schema": 7}]
        self.assertTrue(message(tools=bad).startswith("tools[0].input_schema: "))
        path = "/v1/messages/count_tokens"
        self.assertTrue(message(path=path, tools=bad).startswith("tools[0].input_schema: "))
        self.assertTrue(message(messages=[]).startswith("messages: "))

    def test_query_strings_change_nothing(self):
        body = {"messages": [{"role": "user", "content": "KEY: plain"}], "max_tokens": 500}
        self.assertEqual(json.loads(self.post("/v1/messages?beta=true", body))["content"][0]["text"], "Blue.")


class SmallWindowTest(ScriptedTest):
    flags = ("--context", "256")

    def test_the_window_ends_replies(self):
        message = self.messages("long", max_tokens=32000)
        self.assertEqual(message["stop_reason"], "model_context_window_exceeded")
        self.assertEqual([w["code"] for w in message["invar"]["warnings"]], ["clamped_max_tokens"])
        response = self.responses("long")
        self.assertEqual(response["incomplete_details"], {"reason": "max_output_tokens"})
        body = {"messages": [{"role": "user", "content": "x" * 400}], "max_tokens": 5, "stream": True}
        answer = json.loads(self.post("/v1/messages", body, 400))
        self.assertRegex(answer["error"]["message"], r"^prompt is too long: \d+ tokens > 256 maximum$")
        error = json.loads(self.post("/v1/responses", {"input": "x", "max_output_tokens": 999}, 400))["error"]
        self.assertEqual(error["param"], "max_output_tokens")
        self.assertIn("and max_output_tokens asks for 999", error["message"])


class ModelNameTest(ScriptedTest):
    """Without --any-model-name, which is on for servers of this machine alone."""

    flags = ("--no-any-model-name", "--alias", "tiny")
    chat = {"messages": [{"role": "user", "content": [{"type": "input_text", "text": "KEY: plain"}]}]}

    def test_names_must_be_right(self):
        path = "/v1/chat/completions"
        answer = json.loads(self.post(path, {**self.chat, "model": "tiny"}))
        self.assertEqual(answer["choices"][0]["message"]["content"], "Blue.")
        for fields, status, code in (({}, 400, "missing_field"), ({"model": "other"}, 404, "model_not_found")):
            error = json.loads(self.post(path, {**self.chat, **fields}, status))["error"]
            self.assertEqual((error["code"], error["param"]), (code, "model"))

    def test_a_prompt_can_be_asked_for_without_one(self):
        ids = json.loads(self.post("/apply-template", {**self.chat, "return_token_ids": True}))["prompt_token_ids"]
        for fields in ({}, {"model": None}, {"model": "tiny"}):
            count = json.loads(self.post("/v1/chat/completions/input_tokens", {**self.chat, **fields}))
            self.assertEqual(count, {"object": "response.input_tokens", "input_tokens": len(ids)})
        for path in ("/apply-template", "/v1/chat/completions/input_tokens"):
            error = json.loads(self.post(path, {**self.chat, "model": "other"}, 404))["error"]
            self.assertEqual(error["code"], "model_not_found")
        self.post("/apply-template", b"[]", 400)


class StreamsFromOutsideTest(ScriptedTest):
    """Pings, a server that stops, a HEAD request."""

    flags = ("--drain-timeout", "0")

    def test_pings_fill_silence(self):
        for path, body, ping in (
            ("/v1/responses", {"input": "KEY: silent"}, b": ping\n\n"),
            (
                "/v1/messages",
                {"messages": [{"role": "user", "content": "KEY: silent"}], "max_tokens": 9},
                b'event: ping\ndata: {"type":"ping"}\n\n',
            ),
        ):
            raw = self.post(path, {**body, "sse_ping_interval": 1, "stream": True})
            self.assertIn(ping, raw)
            api_streams.parse(raw)

    def test_cancelled_by_id(self):
        for path, body, final in (
            ("/v1/responses", {"input": "KEY: endless"}, "response.failed"),
            ("/v1/messages", {"messages": [{"role": "user", "content": "KEY: endless"}], "max_tokens": 100000}, "error"),
        ):
            connection = http.client.HTTPConnection(self.server.netloc, timeout=PATIENCE)
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            first = answer.readline() + answer.readline()
            opening = json.loads(first.split(b"\n")[1].removeprefix(b"data: "))
            name = (opening.get("response") or opening.get("message"))["id"]
            with urllib.request.urlopen(self.address + "/v1/requests", timeout=PATIENCE) as listed:
                (entry,) = json.load(listed)["data"]
            self.assertEqual((entry["id"], entry["endpoint"]), (name, path))
            cancel = urllib.request.Request(self.address + "/v1/requests/" + name, method="DELETE")
            with urllib.request.urlopen(cancel, timeout=PATIENCE) as cancelled:
                self.assertTrue(json.load(cancelled)["cancelled"])
            events = api_streams.parse(first + answer.read())
            connection.close()
            self.assertEqual(events[-1][0], final)
            if final == "response.failed":
                response = api_streams.response_of(events)
                self.assertEqual(response["error"]["code"], "request_cancelled")

    def test_draining_ends_streams(self):
        for path, body in (
            ("/v1/responses", {"input": "KEY: endless"}),
            ("/v1/messages", {"messages": [{"role": "user", "content": "KEY: endless"}], "max_tokens": 100000}),
        ):
            server = self.start()
            connection = http.client.HTTPConnection(server.netloc, timeout=PATIENCE)
            connection.request("POST", path, json.dumps({**body, "stream": True}), {"Content-Type": "application/json"})
            answer = connection.getresponse()
            first = answer.readline()
            while path == "/v1/responses" and b"response.in_progress" not in first:
                first += answer.readline()  # its opening is two events
            server.process.send_signal(signal.SIGTERM)
            events = api_streams.parse(first + answer.read())
            self.assertEqual(server.wait(), 0)
            connection.close()
            if path == "/v1/responses":
                self.assertEqual(events[-1][0], "response.failed")
                self.assertEqual(events[-1][1]["response"]["error"]["code"], "draining")
                api_streams.response_of(events)
            else:
                self.assertEqual(events[-1][0], "error")
                self.assertEqual(events[-1][1]["error"]["type"], "overloaded_error")

    def test_head_of_the_page(self):
        request = urllib.request.Request(self.address + "/", method="HEAD")
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
                self.assertEqual((answer.status, answer.read()), (200, b""))
        except urllib.error.HTTPError as error:
            with error:
                self.fail(f"HEAD / gives {error.code}")
