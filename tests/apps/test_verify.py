"""`invar verify`: all families and a real model are exact; a server that is not gets found out, and
what the report names is what it did."""

import hashlib
import http.server
import json
import os
import pty
import shutil
import socket
import subprocess
import threading
from pathlib import Path

from harness import INVAR, PATIENCE, CommandTest, ServerProcess, need_smollm2

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "models"
MOST_EVENTS_OF_THE_LEFT = 13  # verify goes away after fewer
FAMILIES = ("llama", "llama3", "llama_mlx", "qwen2", "qwen3", "gemma3", "qwen3_moe")
# Their states are kept at a few places only, and these texts have no turns.
RECURRENT = ("qwen3_5", "qwen3_5_moe_tied", "qwen3_next", "nemotron_h", "nemotron_h_latent")


def byte_tokenizer():
    """tokenizer.json for the golden models' 96 ids: single characters, as byte-level BPE writes
    them, and an end token."""
    characters = [chr(c) for c in range(33, 127) if chr(c) not in "`~"]
    pieces = ["<end>", "Ġ", "Ċ", *characters]
    return {
        "version": "1.0",
        "added_tokens": [
            {
                "id": 0,
                "content": "<end>",
                "single_word": False,
                "lstrip": False,
                "rstrip": False,
                "normalized": False,
                "special": True,
            }
        ],
        "normalizer": None,
        "pre_tokenizer": {
            "type": "ByteLevel",
            "add_prefix_space": False,
            "trim_offsets": True,
            "use_regex": True,
        },
        "decoder": {"type": "ByteLevel"},
        "model": {
            "type": "BPE",
            "vocab": {piece: i for i, piece in enumerate(pieces)},
            "merges": [],
        },
    }


def golden_model(family, folder):
    """A copy of a golden model that has a tokenizer and a chat template."""
    folder.mkdir(parents=True)
    for name in ("config.json", "model.safetensors"):
        shutil.copy(GOLDEN / family / name, folder / name)
    (folder / "tokenizer.json").write_text(json.dumps(byte_tokenizer()))
    template = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<end>",
        "chat_template": template,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return str(folder)


class VerifyTest(CommandTest):
    def verify(self, target, *flags, code=0, **environment):
        result = self.run_invar("verify", target, *flags, timeout=10 * PATIENCE, **environment)
        self.assertEqual(result.returncode, code, (result.stdout + result.stderr).decode())
        return result.stdout.decode()

    def serve(self, model, *flags):
        return ServerProcess(self, model, *flags, environment=self.environment).address


class ModelTest(VerifyTest):
    def test_every_family(self):
        for family in (*FAMILIES, *RECURRENT):
            with self.subTest(family):
                model = golden_model(family, self.folder / family)
                report = json.loads(self.verify(model, "--requests", "40", "--json"))
                self.assertIs(report["equal"], True)
                self.assertEqual(report["left_out"], [])
                rounds = report["rounds"]
                self.assertEqual({r["engine"]["threads"] for r in rounds}, {1, 2})
                chunks = {r["engine"]["prefill_chunk"] for r in rounds}
                self.assertTrue({1, 2048} <= chunks, chunks)
                self.assertGreater(max(r["most_in_flight"] for r in rounds), 20)
                self.assertGreater(sum(r["cancelled"] for r in rounds), 5)
                least_cached = 200 if family in RECURRENT else 1000
                self.assertGreater(sum(r["cached_tokens"] for r in rounds), least_cached)
                self.assertGreater(sum(r["preemptions"] for r in rounds), 0)
                for r in rounds:
                    if r["cache"] == "off":
                        self.assertEqual(r["cached_tokens"], 0)
                for name, count in report["mix"].items():
                    self.assertGreater(count, 0, name)

    def test_a_real_model(self):
        table = self.verify(need_smollm2(), "--quick", "--requests", "8")
        self.assertIn("cpu-1", table)
        self.assertRegex(table, r"(?m)^equal: \d+ replies to 12 requests and \d+ beginnings")
        self.assertLessEqual(max(map(len, table.splitlines())), 130)

    def test_a_seed_gives_the_same_requests(self):
        model = golden_model("llama", self.folder / "llama")

        def alone(seed):
            flags = ["--quick", "--requests", "6", "--json", "--seed", str(seed)]
            report = json.loads(self.verify(model, *flags))
            return {k: v for k, v in report["alone"].items() if k != "seconds"}, report["mix"]

        self.assertEqual(alone(5), alone(5))
        self.assertNotEqual(alone(5), alone(6))

    def test_a_server(self):
        model = golden_model("qwen3", self.folder / "tiny")
        url = self.serve(model, "--api-key", "secret", "--parallel", "8")
        flags = ["--requests", "40", "--json"]
        report = json.loads(self.verify(url + "/v1", *flags, INVAR_API_KEY="secret"))
        self.assertIs(report["equal"], True)
        self.assertEqual(report["left_out"], [])
        self.assertEqual({r["stream"] for r in report["rounds"]}, {"on", "off", "mixed"})
        self.assertGreater(sum(r["cancelled"] for r in report["rounds"]), 5)
        self.assertGreater(sum(r["logprobs"] for r in report["rounds"]), 100)
        self.assertGreater(sum(r["cached_tokens"] for r in report["rounds"]), 1000)
        result = self.run_invar("verify", url, "--api-key", "wrong")
        self.assert_fails(result, 1, "401")

    def test_errors(self):
        self.assert_fails(self.run_invar("verify"), 2, "MODEL")
        self.assert_fails(self.run_invar("verify", "nowhere.gguf"), 3, "nowhere.gguf")
        # What would have no effect is not taken.
        self.assert_fails(self.run_invar("verify", "http://127.0.0.1:1", "--threads", "2"), 2, "--threads")
        self.assert_fails(self.run_invar("verify", "nowhere.gguf", "--api-key", "k"), 2, "--api-key")
        with socket.socket() as bound:  # nobody listens
            bound.bind(("127.0.0.1", 0))
            url = f"http://127.0.0.1:{bound.getsockname()[1]}"
            self.assert_fails(self.run_invar("verify", url), 1, url)


class FakeServer(http.server.ThreadingHTTPServer):
    """Replies whose ids are a hash of the request. `fault(server, ids, body)` may change them; it
    runs while the request counts as running, after a moment in which others can arrive."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, fault=None, with_ids=True, model="fake", stream_text=""):
        super().__init__(("127.0.0.1", 0), FakeHandler)
        self.fault, self.with_ids, self.model, self.stream_text = fault, with_ids, model, stream_text
        self.context, self.health_answers_left = 1024, 1
        self.lock, self.running, self.faults = threading.Lock(), 0, []
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.thread = threading.Thread(target=self.serve_forever, args=(0.01,))
        self.thread.start()

    def end(self):
        self.shutdown()
        self.thread.join()
        self.server_close()


class FakeHandler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    wbufsize = -1

    def log_message(self, *arguments):
        pass

    def send(self, status, body, kind="application/json"):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        server = self.server
        if self.path == "/health":
            server.health_answers_left -= 1
            loading = server.health_answers_left > 0
            self.send(503 if loading else 200, b"{}")
            return
        model = {"id": server.model}
        if server.health_answers_left <= 0:
            model["max_model_len"] = server.context
        self.send(200, json.dumps({"data": [model]}).encode())

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.path == "/tokenize":
            self.send(404, b"{}")
            return
        server = self.server
        with server.lock:
            server.running += 1
        try:
            threading.Event().wait(0.003)
            self.reply(body)
        except ConnectionError:
            self.close_connection = True  # it went away, as some do; or a test had us go
        finally:
            with server.lock:
                server.running -= 1

    def reply(self, body):
        server = self.server
        asked = {k: v for k, v in body.items() if k not in ("stream", "cache_prompt", "seed")}
        seed = body.get("seed", 77)
        choices, shas = [], []
        for index in range(body.get("n", 1)):
            text = json.dumps([asked, seed, index], sort_keys=True).encode()
            ids = [b for b in hashlib.sha256(text).digest()[: body["max_tokens"]]]
            if server.fault:
                server.fault(server, ids, body)
            shas.append(hashlib.sha256(b"".join(i.to_bytes(4, "little") for i in ids)).hexdigest())
            choices.append({"index": index, "finish_reason": "length", "text": f"{ids}"})
            if server.with_ids:
                choices[-1]["token_ids"] = ids
        invar = {"seed": seed, "token_sha": shas, "arithmetic_id": "fake-1", "model_sha": "0"}
        if not body.get("stream"):
            self.send(200, json.dumps({"choices": choices, "invar": invar}).encode())
            return
        # An event for each id, and one for the end.
        chunks = []
        for choice in choices:
            index, words = choice["index"], choice["text"].split(" ")
            ids = [[id] for id in choice["token_ids"]] if server.with_ids else [[]] * len(words)
            for i, (id, word) in enumerate(zip(ids, words)):
                text = word if i == 0 else " " + word
                chunks.append({"choices": [{"index": index, "text": text, "token_ids": id}]})
            chunks.append({"choices": [{"index": index, "finish_reason": "length"}]})
        if len(chunks) > MOST_EVENTS_OF_THE_LEFT and not body["cache_prompt"]:
            first = chunks[0]["choices"][0]
            first["text"] = server.stream_text + first["text"]
        chunks.append({"choices": [], "invar": invar})
        events = [f"data: {json.dumps(chunk)}\n\n" for chunk in chunks] + ["data: [DONE]\n\n"]
        self.send(200, "".join(events).encode(), "text/event-stream")


def wrong_in_company(server, ids, body):
    """Every twentieth reply that has company gets another token."""
    with server.lock:
        if server.running > 1 and len(ids) > 3:
            server.faults.append(None)
            if len(server.faults) % 20 == 0:
                ids[3] ^= 1


def wrong_from_the_cache(server, ids, body):
    if body["cache_prompt"] and len(ids) > 2:
        ids[-1] ^= 1


def wrong_alone(server, ids, body):
    with server.lock:
        server.faults.append(None)
        ids[0] = len(server.faults)


class FaultTest(VerifyTest):
    def fake(self, *arguments, **options):
        server = FakeServer(*arguments, **options)
        self.addCleanup(server.end)
        return server

    def test_an_exact_server(self):
        server = self.fake()
        table = self.verify(server.url, "--requests", "60")
        self.assertIn("fake-1", table)
        self.assertIn("left out: logit_bias", table)
        self.assertRegex(table, r"(?m)^equal: ")

    def test_a_server_that_still_loads_is_waited_for(self):
        # Until then its list of models has no window, which is 300 here.
        server = self.fake()
        server.context, server.health_answers_left = 300, 3
        server.fault = self.too_long
        report = json.loads(self.verify(server.url, "--requests", "40", "--json"))
        self.assertFalse([why for why in report["left_out"] if "max_model_len" in why])
        self.assertEqual(server.faults, [])

    @staticmethod
    def too_long(server, ids, body):
        if body["max_tokens"] > 300 // 8:
            server.faults.append(body)

    def test_wrong_in_company(self):
        for with_ids in (True, False):
            with self.subTest(with_ids=with_ids):
                server = self.fake(wrong_in_company, with_ids=with_ids)
                flags = ["--requests", "60", "--json"]
                report = json.loads(self.verify(server.url, *flags, code=1))
                self.assertIs(report["equal"], False)
                difference = report["difference"]
                # Without ids only the text tells what is wrong with a reply that we left.
                self.assertIn(difference["what"], ["tokens"] if with_ids else ["tokens", "text"])
                self.assertEqual(difference["position"], 3 if with_ids else None)
                self.assertGreaterEqual(len(difference["beside"]), 1)
                self.assertRegex(difference["alone_again"], "^equal")
                self.assertIs(report["rounds"][-1]["equal"], False)
                self.assertTrue(all(r["equal"] for r in report["rounds"][:-1]))
                # The body that is printed is the request that went wrong.
                body = difference["body"]
                self.assertGreater(body["max_tokens"], 3)
                self.assertTrue("messages" in body or "prompt" in body)

    def test_the_table_names_it(self):
        server = self.fake(wrong_in_company)
        table = self.verify(server.url, "--requests", "60", code=1)
        self.assertRegex(table, r"(?m)^DIFFERENT: request \d+, choice \d, tokens at position 3 ")
        self.assertRegex(table, r"(?m)^  beside +\d")
        self.assertRegex(table, r"(?m)^  alone +\d.*\[\d+\]")
        self.assertRegex(table, r"(?m)^  now +\d.*\[\d+\]")

    def test_the_text_of_a_reply_that_we_left(self):
        # The second round, without the cache, streams only those replies that it goes away from. A
        # reply that is longer than that is never read to its end.
        server = self.fake(stream_text="x")
        report = json.loads(self.verify(server.url, "--requests", "40", "--json", code=1))
        self.assertEqual(len(report["rounds"]), 2)
        difference = report["difference"]
        self.assertEqual((difference["what"], difference["stream"]), ("text", False))
        self.assertRegex(difference["found"], r'^"x\[')

    def test_a_terminal_is_not_driven(self):
        server = self.fake(wrong_in_company, model="a\x1b]0;evil\x07b")
        ours, theirs = pty.openpty()
        self.addCleanup(os.close, ours)
        command = subprocess.Popen([INVAR, "verify", server.url, "--requests", "60"], stdout=theirs, stderr=subprocess.PIPE)
        os.close(theirs)
        shown = b""
        while True:
            try:
                shown += os.read(ours, 4096)
            except OSError:  # it has ended
                break
        command.communicate()
        self.assertIn(b"DIFFERENT", shown)
        self.assertIn(b"evil", shown)
        self.assertNotIn(b"\x1b]", shown)

    def test_wrong_from_the_cache(self):
        server = self.fake(wrong_from_the_cache)
        report = json.loads(self.verify(server.url, "--requests", "20", "--json", code=1))
        self.assertIs(report["difference"]["cache"], True)
        self.assertRegex(report["difference"]["alone_again"], "^differs too")

    def test_never_twice_the_same(self):
        server = self.fake(wrong_alone)
        report = json.loads(self.verify(server.url, "--requests", "20", "--json", code=1))
        self.assertEqual(report["difference"]["position"], 0)

    def test_a_reply_that_breaks_off(self):
        def leave(server, ids, body):
            with server.lock:
                server.faults.append(None)
                if len(server.faults) >= 40:
                    raise ConnectionError

        server = self.fake(leave)
        report = json.loads(self.verify(server.url, "--requests", "20", "--json", code=1))
        self.assertEqual(report["difference"]["what"], "error")


if __name__ == "__main__":
    import unittest

    unittest.main()
