"""The OpenAI-style endpoints over a real small model: the same replies alone, in company, streamed
and from the cache (reported cases D5, D7, D8), and bodies that are refused."""

import hashlib
import json
import random
import threading
import unittest
import urllib.error
import urllib.request
from pathlib import Path

from harness import PATIENCE, CommandTest, ServerProcess, need_qwen, need_smollm2


class ChatServerTest(CommandTest):
    """One server for the tests of a class."""

    model = None
    flags = ()

    @classmethod
    def setUpClass(cls):
        if cls.model is None:
            raise unittest.SkipTest("only a base")
        cls.server = ServerProcess(cls, cls.model(), "--alias", "tiny", *cls.flags).wait_ready()
        cls.address = cls.server.address

    def post(self, path, body, expect=200):
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        request = urllib.request.Request(self.address + path, data, {"Content-Type": "application/json"})
        try:
            with urllib.request.urlopen(request, timeout=5 * PATIENCE) as answer:
                status, raw = answer.status, answer.read()
        except urllib.error.HTTPError as error:
            with error:
                status, raw = error.code, error.read()
        self.assertEqual(status, expect, raw)
        return raw

    def chat(self, text, expect=200, **fields):
        body = {"messages": [{"role": "user", "content": text}], "max_tokens": 16, **fields}
        return json.loads(self.post("/v1/chat/completions", body, expect))

    def stream(self, path, body):
        raw = self.post(path, {**body, "stream": True}).decode()
        # Comments are pings: on a slow machine a prompt takes so long that some are sent.
        events = [event for event in raw.split("\n\n") if not event.startswith(":")]
        self.assertEqual(events.pop(), "")
        self.assertEqual(events.pop(), "data: [DONE]")
        return [json.loads(event.removeprefix("data: ")) for event in events]


class SmolLm2Test(ChatServerTest):
    model = staticmethod(need_smollm2)
    flags = ("--parallel", "8", "--context", "2048")

    def test_token_sha_is_the_hash_of_the_ids(self):
        answer = self.chat("Name a colour.", temperature=0, return_token_ids=True)
        ids = answer["choices"][0]["token_ids"]
        self.assertEqual(answer["usage"]["completion_tokens"], len(ids))
        digest = hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest()
        self.assertEqual(answer["invar"]["token_sha"], [digest])
        self.assertEqual(answer["invar"]["arithmetic_id"], "cpu-1")

    def test_a_stream_joins_to_the_whole_answer(self):
        body = {
            "messages": [{"role": "user", "content": "Say 你好 and smile."}],
            "max_tokens": 24,
            "seed": 11,
            "n": 3,
            "logprobs": True,
            "top_logprobs": 2,
            "stream_options": None,
        }
        whole = json.loads(self.post("/v1/chat/completions", body))
        chunks = self.stream("/v1/chat/completions", {**body, "stream_options": {"include_usage": True}})
        for index, choice in enumerate(whole["choices"]):
            mine = [c["choices"][0] for c in chunks if c["choices"] and c["choices"][0]["index"] == index]
            self.assertEqual(mine[0]["delta"], {"role": "assistant", "content": ""})
            text = "".join(c["delta"].get("content", "") for c in mine)
            self.assertEqual(text, choice["message"]["content"])
            self.assertEqual(mine[-1]["finish_reason"], choice["finish_reason"])
            entries = [e for c in mine for e in (c["logprobs"] or {}).get("content") or []]
            self.assertEqual(entries, choice["logprobs"]["content"])
            raw = bytes(b for e in entries for b in e["bytes"])
            self.assertTrue(raw.startswith(text.replace("\ufffd", "").encode()[:4]))
        self.assertEqual(chunks[-1]["choices"], [])
        self.assertEqual(chunks[-1]["usage"]["completion_tokens"], whole["usage"]["completion_tokens"])
        self.assertEqual(chunks[-1]["invar"]["token_sha"], whole["invar"]["token_sha"])
        for chunk in chunks[:-1]:
            self.assertIsNone(chunk["usage"])
        self.assertEqual(len(set(whole["invar"]["token_sha"])), 3)

    def test_the_same_prompt_again(self):  # D5
        prompt = "Tell me about rivers, lakes and seas. " * 20
        cold = self.chat(prompt, temperature=0, cache_prompt=False)
        self.assertEqual(cold["usage"]["prompt_tokens_details"]["cached_tokens"], 0)
        first = self.chat(prompt, temperature=0)
        again = self.chat(prompt, temperature=0)
        for answer in (first, again):
            self.assertEqual(answer["invar"]["token_sha"], cold["invar"]["token_sha"])
        usage = again["usage"]
        cached = usage["prompt_tokens_details"]["cached_tokens"]
        self.assertEqual(cached, usage["prompt_tokens"] - 1)
        for variant in (prompt[:-20], prompt + "And deserts and mountains, if you like."):
            warm = self.chat(variant, temperature=0)
            cold = self.chat(variant, temperature=0, cache_prompt=False)
            self.assertEqual(warm["invar"]["token_sha"], cold["invar"]["token_sha"])
            self.assertGreater(warm["usage"]["prompt_tokens_details"]["cached_tokens"], 100)

    def test_replies_do_not_depend_on_company(self):  # D7, and the product's promise
        rng = random.Random(7)
        requests = []
        for i in range(24):
            fields = {"temperature": rng.choice([0, 0.7, 1.5]), "seed": i, "max_tokens": rng.randint(4, 40)}
            if rng.random() < 0.3:
                fields["presence_penalty"] = 1.0
            if rng.random() < 0.3:
                fields["top_p"] = 0.8
            if rng.random() < 0.3:
                fields["stop"] = [" the", "."]
            requests.append((f"Story {i % 5} about a fox. " * rng.randint(1, 30), fields))
        alone = [self.chat(text, cache_prompt=False, **f)["invar"]["token_sha"] for text, f in requests]
        together = [None] * len(requests)

        def ask(i):
            threading.Event().wait(random.random())
            text, fields = requests[i]
            together[i] = self.chat(text, **fields)["invar"]["token_sha"]

        threads = [threading.Thread(target=ask, args=(i,)) for i in range(len(requests))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(together, alone)

    def test_seeds_are_reported_and_work(self):  # D7
        answers = [self.chat("Write a line.", temperature=1) for _ in range(4)]
        self.assertGreater(len({a["invar"]["token_sha"][0] for a in answers}), 1)
        again = self.chat("Write a line.", temperature=1, seed=answers[0]["invar"]["seed"])
        self.assertEqual(again["invar"]["token_sha"], answers[0]["invar"]["token_sha"])

    def test_prompts_beyond_the_window(self):  # D8
        long = "word " * 3000
        for body in ({"stream": True}, {"max_tokens": None}):
            error = self.chat(long, expect=400, **body)["error"]
            self.assertEqual(error["code"], "context_length_exceeded")
            self.assertTrue(error["message"].startswith("This model's maximum context length is 2048"))
        error = self.chat("short", expect=400, max_tokens=5000)["error"]
        self.assertEqual(error["param"], "max_tokens")
        body = {"prompt": long, "max_tokens": 4}
        self.assertIn(b"context_length_exceeded", self.post("/v1/completions", body, 400))

    def test_bad_bodies(self):  # D10
        for body in (
            b"",
            b"{",
            b"[]",
            b'"x"',
            b"[" * 200_000,
            b'{"messages":1}',
            b'{"temperature":1e999}',
            b'{"messages":[],"messages":[]}',
            b'{"a":"\xc3\x28"}',
        ):
            error = json.loads(self.post("/v1/chat/completions", body, 400))["error"]
            self.assertEqual(set(error), {"message", "type", "param", "code"})
        self.assertEqual(self.chat("x", expect=400, temperature="hot")["error"]["param"], "temperature")
        image = {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]}
        error = json.loads(self.post("/v1/chat/completions", image, 400))["error"]
        self.assertEqual(error["code"], "unsupported_content")
        self.assertEqual(error["param"], "messages[0].content[0].type")
        self.chat("still here")

    def test_stop_strings(self):  # D2
        free = self.chat("Count: one, two, three.", temperature=0, max_tokens=40)
        text = free["choices"][0]["message"]["content"]
        stop = text[len(text) // 2 : len(text) // 2 + 3]
        answer = self.chat("Count: one, two, three.", temperature=0, max_tokens=40, stop=[stop])
        choice = answer["choices"][0]
        self.assertEqual(choice["message"]["content"], text[: text.index(stop)])
        self.assertEqual(choice["stop_reason"], stop)
        self.assertEqual(choice["finish_reason"], "stop")

    def test_schemas_are_enforced(self):  # D9
        schema = {
            "type": "object",
            "properties": {
                "kind": {"enum": ["cat", "dog"]},
                "legs": {"type": "integer", "minimum": 0, "maximum": 9},
                "tags": {"type": "array", "items": {"type": "string", "maxLength": 4}, "minItems": 1, "maxItems": 3},
            },
            "required": ["kind", "legs", "tags"],
        }
        form = {"type": "json_schema", "json_schema": {"name": "pet", "schema": schema}}
        for seed in range(10):
            answer = self.chat("Describe a pet.", temperature=2, seed=seed, max_tokens=200, response_format=form)
            self.assertEqual(answer["choices"][0]["finish_reason"], "stop")
            pet = json.loads(answer["choices"][0]["message"]["content"])
            self.assertEqual(list(pet), ["kind", "legs", "tags"])
            self.assertIn(pet["kind"], ("cat", "dog"))
            self.assertTrue(0 <= pet["legs"] <= 9 and 1 <= len(pet["tags"]) <= 3)
        for bad in ({"pattern": "(?<=x)+y"}, {"$ref": "#/$defs/none"}, {"not": {}}):
            form = {"type": "json_schema", "json_schema": {"name": "x", "schema": bad}}
            error = self.chat("x", expect=400, response_format=form)["error"]
            self.assertEqual(error["code"], "unsupported_schema")
            self.assertIn(next(iter(bad)), error["message"])

    def test_tools_need_a_template_that_shows_them(self):
        tools = [{"type": "function", "function": {"name": "f"}}]
        error = self.chat("x", expect=400, tools=tools)["error"]
        self.assertEqual((error["param"], error["code"]), ("tools", "unsupported_parameter"))
        self.chat("x", tools=tools, tool_choice="none")

    def test_completions(self):
        body = {"prompt": ["The sky is", [504, 6376, 314]], "max_tokens": 6, "temperature": 0, "logprobs": 2}
        whole = json.loads(self.post("/v1/completions", body))
        self.assertEqual([c["index"] for c in whole["choices"]], [0, 1])
        for choice in whole["choices"]:
            self.assertEqual("".join(choice["logprobs"]["tokens"]), choice["text"])
            self.assertEqual(len(choice["logprobs"]["text_offset"]), 6)
        chunks = self.stream("/v1/completions", body)
        for index, choice in enumerate(whole["choices"]):
            text = "".join(c["choices"][0]["text"] for c in chunks if c["choices"][0]["index"] == index)
            self.assertEqual(text, choice["text"])

    def test_completions_with_a_schema_and_ids(self):
        body = {
            "prompt": "A number:",
            "max_tokens": 8,
            "return_token_ids": True,
            "response_format": {"type": "json_schema", "schema": {"enum": [1, 22]}},
        }
        answer = json.loads(self.post("/v1/completions", body))
        self.assertIn(answer["choices"][0]["text"], ("1", "22"))
        self.assertEqual(len(answer["prompt_token_ids"]), answer["usage"]["prompt_tokens"])
        body["seed"] = answer["invar"]["seed"]
        chunks = self.stream("/v1/completions", body)
        ids = [i for c in chunks for i in c["choices"][0]["token_ids"]]
        self.assertEqual(ids, answer["choices"][0]["token_ids"])
        self.assertEqual(chunks[0]["prompt_token_ids"], answer["prompt_token_ids"])
        for field in (
            {"stream": True, "stream_options": {"continuous_usage_stats": True}},
            {"sse_ping_interval": 0},
            {"min_tokens": 9},
        ):
            self.assertIn(next(reversed(field)).encode(), self.post("/v1/completions", {**body, **field}, 400))

    def test_what_ends_a_reply(self):
        body = {"temperature": 0, "max_tokens": 20, "return_token_ids": True}
        choice = self.chat("Name a colour.", **body)["choices"][0]
        ids, text = choice["token_ids"], choice["message"]["content"]
        at = next(i for i in range(4, len(ids)) if ids[i] not in ids[:i])
        cut = self.chat("Name a colour.", **body, stop_token_ids=[ids[at]])["choices"][0]
        self.assertEqual(cut["token_ids"], ids[: at + 1])
        self.assertEqual((cut["finish_reason"], cut["stop_reason"]), ("stop", ids[at]))
        self.assertTrue(text.startswith(cut["message"]["content"]))
        late = self.chat("Name a colour.", **body, stop_token_ids=ids[:at], min_tokens=at)
        self.assertGreaterEqual(len(late["choices"][0]["token_ids"]), at)
        word = text.split()[2]
        with_stop = self.chat("Name a colour.", **body, stop=[word], include_stop_str_in_output=True)
        self.assertTrue(with_stop["choices"][0]["message"]["content"].endswith(word))
        error = self.chat("x", expect=400, stop_token_ids=[10**7])["error"]
        self.assertEqual(error["param"], "stop_token_ids")

    def test_a_reply_goes_on_with_the_last_message(self):
        messages = [
            {"role": "user", "content": "Count to five."},
            {"role": "assistant", "content": "One, two,"},
        ]
        rendered = json.loads(self.post("/apply-template", {"messages": messages, "continue_final_message": True}))["prompt"]
        self.assertTrue(rendered.endswith("One, two,"), rendered[-40:])
        body = {"messages": messages, "max_tokens": 6, "temperature": 0}
        whole = json.loads(self.post("/v1/chat/completions", {**body, "continue_final_message": True}))
        raw = {"prompt": rendered, "max_tokens": 6, "temperature": 0}
        same = json.loads(self.post("/v1/completions", raw))
        self.assertEqual(whole["invar"]["token_sha"], same["invar"]["token_sha"])
        both = {**body, "continue_final_message": True, "add_generation_prompt": True}
        self.post("/v1/chat/completions", both, 400)
        user_last = {**body, "messages": messages[:1], "continue_final_message": True}
        self.post("/v1/chat/completions", user_last, 400)

    def test_progress_and_timings_while_it_runs(self):
        body = {
            "messages": [{"role": "user", "content": "word " * 1200}],
            "max_tokens": 3,
            "return_progress": True,
            "timings_per_token": True,
            "cache_prompt": False,
        }
        chunks = self.stream("/v1/chat/completions", body)
        progress = [c["prompt_progress"] for c in chunks if "prompt_progress" in c]
        total = chunks[-1]["timings"]["prompt_n"]
        self.assertEqual({p["total"] for p in progress}, {total})
        processed = [p["processed"] for p in progress]
        self.assertEqual(processed, sorted(processed))
        self.assertEqual(processed[0], 0)
        counts = [c["timings"]["predicted_n"] for c in chunks]
        self.assertEqual(counts, sorted(counts))
        self.post("/v1/chat/completions", {**body, "stream": False}, 400)

    def test_a_prompt_is_scored(self):
        text = "The sky is blue and the grass is green."
        body = {"prompt": text, "echo": True, "logprobs": 2, "max_tokens": 0}
        (choice,) = json.loads(self.post("/v1/completions", body))["choices"]
        self.assertEqual((choice["text"], choice["finish_reason"]), (text, "length"))
        scores = choice["logprobs"]
        self.assertEqual("".join(scores["tokens"]), text)
        self.assertEqual((scores["token_logprobs"][0], scores["top_logprobs"][0]), (None, None))
        for i, offset in enumerate(scores["text_offset"]):
            self.assertTrue(text[offset:].startswith(scores["tokens"][i]))
        # What it gives to the prompt's own next token is what a reply from there gives it.
        ids = json.loads(self.post("/tokenize", {"prompt": text}))["tokens"]
        for cut in (3, len(ids) - 1):
            bias = {str(ids[cut]): 100}
            ask = {"prompt": ids[:cut], "max_tokens": 1, "logprobs": 0, "logit_bias": bias}
            (reply,) = json.loads(self.post("/v1/completions", ask))["choices"]
            self.assertEqual(reply["logprobs"]["token_logprobs"][0], scores["token_logprobs"][cut])

    def test_no_tokens_wanted_fills_the_cache(self):
        prompt = "An unusual beginning, said once: " + "lorem ipsum " * 40
        body = {"prompt": prompt, "max_tokens": 0}
        first = json.loads(self.post("/v1/completions", body))
        self.assertEqual(first["usage"]["completion_tokens"], 0)
        again = json.loads(self.post("/v1/completions", {**body, "max_tokens": 1}))
        self.assertGreater(again["usage"]["prompt_tokens_details"]["cached_tokens"], 64)

    def test_token_routes(self):
        text = "Hello, wörld <|im_end|>"
        answer = json.loads(self.post("/tokenize", {"content": text, "with_pieces": True}))
        ids = [t["id"] for t in answer["tokens"]]
        self.assertEqual(answer["count"], len(ids))
        back = json.loads(self.post("/detokenize", {"tokens": ids}))
        self.assertEqual(back["content"], text)
        chat = {"messages": [{"role": "user", "content": "Hi"}]}
        prompt = json.loads(self.post("/apply-template", {**chat, "return_token_ids": True}))
        count = json.loads(self.post("/v1/chat/completions/input_tokens", chat))["input_tokens"]
        self.assertEqual(len(prompt["prompt_token_ids"]), count)
        answer = json.loads(self.post("/v1/chat/completions", {**chat, "max_tokens": 1}))
        self.assertEqual(answer["usage"]["prompt_tokens"], count)
        self.post("/detokenize", {"tokens": [10**9]}, 400)

    def test_a_client_that_leaves_frees_its_place(self):  # D4, in short
        request = json.dumps(
            {"messages": [{"role": "user", "content": "x"}], "max_tokens": 1500, "ignore_eos": True, "stream": True}
        ).encode()
        for _ in range(20):  # more than run at once: they would fill every place for minutes
            call = urllib.request.Request(self.address + "/v1/chat/completions", request, {"Content-Type": "application/json"})
            with urllib.request.urlopen(call, timeout=PATIENCE) as answer:
                answer.readline()
        self.chat("still answering?", max_tokens=4)


class QwenToolsTest(ChatServerTest):
    @staticmethod
    def model():
        return need_qwen()

    flags = ("--context", "4096")
    tools = [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "description": "The weather of a city",
                "parameters": {
                    "type": "object",
                    "properties": {"city": {"type": "string", "maxLength": 30}},
                    "required": ["city"],
                },
            },
        },
        {"type": "function", "function": {"name": "ping", "description": "Pings"}},
    ]

    def test_a_tool_loop(self):
        body = {
            "messages": [{"role": "user", "content": "What is the weather in Oslo?"}],
            "tools": self.tools,
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "temperature": 0,
            "max_tokens": 60,
        }
        whole = json.loads(self.post("/v1/chat/completions", body))
        choice = whole["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls")
        self.assertIsNone(choice["message"]["content"])
        (call,) = choice["message"]["tool_calls"]
        self.assertTrue(call["id"].startswith("call_"))
        self.assertEqual(call["function"]["name"], "weather")
        self.assertIn("city", json.loads(call["function"]["arguments"]))

        deltas = [c["choices"][0]["delta"] for c in self.stream("/v1/chat/completions", body)]
        calls = [d["tool_calls"][0] for d in deltas if "tool_calls" in d]
        self.assertEqual(calls[0]["function"], {"name": "weather", "arguments": ""})
        self.assertEqual({c["index"] for c in calls}, {0})
        joined = "".join(c["function"]["arguments"] for c in calls)
        self.assertEqual(joined, call["function"]["arguments"])
        self.assertNotIn("tool_call>", "".join(d.get("content") or "" for d in deltas))

        body["messages"] += [
            choice["message"],
            {"role": "tool", "tool_call_id": call["id"], "content": "4 degrees, rain"},
        ]
        body["tool_choice"] = "none"
        answer = json.loads(self.post("/v1/chat/completions", body))
        self.assertEqual(answer["choices"][0]["finish_reason"] in ("stop", "length"), True)
        self.assertTrue(answer["choices"][0]["message"]["content"])

    def test_schemas_of_tools_that_are_not_strict_are_relaxed_with_a_warning(self):
        tool = json.loads(json.dumps(self.tools[0]))
        tool["function"]["parameters"]["properties"]["city"] = {"type": "string", "not": {}}
        body = {"temperature": 0, "max_tokens": 40, "tools": [tool], "tool_choice": "required"}
        (warning,) = self.chat("weather in Oslo", **body)["invar"]["warnings"]
        self.assertEqual(warning["code"], "tool_schema_relaxed")
        self.assertIn("not", warning["message"])
        tool["function"]["strict"] = True
        error = self.chat("weather in Oslo", expect=400, **body)["error"]
        self.assertEqual((error["code"], error["param"]), ("unsupported_schema", "tools"))

    def test_a_named_function(self):
        choice = {"type": "function", "function": {"name": "ping"}}
        answer = self.chat("hello", temperature=0, max_tokens=40, tools=self.tools, tool_choice=choice)
        (call,) = answer["choices"][0]["message"]["tool_calls"]
        self.assertEqual(call["function"], {"name": "ping", "arguments": "{}"})


class OperatorTest(ChatServerTest):
    """What the operator says counts where a request says nothing, and is shown."""

    model = staticmethod(need_smollm2)
    template = "<|im_start|>{% for m in messages %}[{{ m.content }}]{% endfor %}"
    flags = ("--context", "1024", "--chat-template", template, "--temp", "0.25", "--top-k", "7")

    def get(self, path):
        with urllib.request.urlopen(self.address + path, timeout=PATIENCE) as answer:
            return json.load(answer)

    def test_template_and_sampling(self):
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        prompt = json.loads(self.post("/apply-template", body))["prompt"]
        self.assertEqual(prompt, "<|im_start|>[Hi]")
        sampling = self.get("/v1/models")["data"][0]["meta"]["default_sampling"]
        self.assertEqual((sampling["temperature"], sampling["top_k"]), (0.25, 7))
        shown = self.get("/props")["default_generation_settings"]["params"]
        self.assertEqual((shown["temperature"], shown["top_k"]), (0.25, 7))
        said = {"temperature": 0.25, "top_k": 7}
        shas = [self.chat("Hi", seed=3, **fields)["invar"]["token_sha"] for fields in ({}, said, {"temperature": 3})]
        self.assertEqual(shas[0], shas[1])
        self.assertNotEqual(shas[0], shas[2])


class ChatMlTest(ChatServerTest):
    model = staticmethod(need_smollm2)
    flags = ("--context", "1024", "--chat-template", "chatml")

    def test_a_template_by_name(self):
        body = {"messages": [{"role": "user", "content": "Hi"}]}
        prompt = json.loads(self.post("/apply-template", body))["prompt"]
        self.assertEqual(prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n")


TEMPLATES = Path(__file__).parents[1] / "golden" / "templates"


class OtherSyntaxTest(ChatServerTest):
    """Calls as other families write them: their templates over a model that we have."""

    model = staticmethod(QwenToolsTest.model)
    template = "schema_xml.jinja"
    flags = ("--context", "4096", "--chat-template-file", str(TEMPLATES / template))
    tool = {
        "type": "function",
        "function": {
            "name": "book",
            "description": "Books seats",
            "parameters": {
                "type": "object",
                "properties": {
                    "town": {"type": "string", "maxLength": 20},
                    "seats": {"type": "integer", "minimum": 1, "maximum": 9},
                    "window": {"type": "boolean"},
                },
                "required": ["town", "seats", "window"],
            },
        },
    }

    def test_a_call_that_was_asked_for(self):
        body = {
            "messages": [{"role": "user", "content": "Book two window seats to Oslo."}],
            "tools": [self.tool],
            "tool_choice": "required",
            "parallel_tool_calls": False,
            "temperature": 0,
            "max_tokens": 120,
            "thinking_budget": 8,  # one of the templates begins with open reasoning
        }
        whole = json.loads(self.post("/v1/chat/completions", body))
        choice = whole["choices"][0]
        self.assertEqual(choice["finish_reason"], "tool_calls", choice)
        (call,) = choice["message"]["tool_calls"]
        arguments = json.loads(call["function"]["arguments"])
        self.assertEqual(set(arguments), {"town", "seats", "window"})
        self.assertIsInstance(arguments["town"], str)
        self.assertIsInstance(arguments["seats"], int)
        self.assertIsInstance(arguments["window"], bool)
        deltas = [c["choices"][0]["delta"] for c in self.stream("/v1/chat/completions", body)]
        calls = [d["tool_calls"][0]["function"] for d in deltas if "tool_calls" in d]
        self.assertEqual("".join(c["arguments"] for c in calls), call["function"]["arguments"])
        self.assertFalse(any(d.get("content") for d in deltas))
        body["messages"] += [
            choice["message"],
            {"role": "tool", "tool_call_id": call["id"], "content": "booked"},
        ]
        body["tool_choice"] = "auto"
        answer = json.loads(self.post("/v1/chat/completions", body))
        self.assertIn(answer["choices"][0]["finish_reason"], ("stop", "length", "tool_calls"))


class BareSyntaxTest(OtherSyntaxTest):
    template = "header_ids.jinja"
    flags = ("--context", "4096", "--chat-template-file", str(TEMPLATES / template))


if __name__ == "__main__":
    unittest.main()
