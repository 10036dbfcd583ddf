"""What a server does when the engine fails it: bad logits end one request, a standstill the process.
Over the scripted backend (docs/scripted-backend.md)."""

import http.client
import json
import re
import subprocess
import threading
import time
import unittest
import urllib.parse

from harness import INVAR, CommandTest

SCRIPT = {
    "scripts": {
        "stuck": {"text": "never", "delay_ms": 600000},
        "slow": {"text": "12345678", "cut": 1, "delay_ms": 300},
        "bad": {"text": "abcdef", "cut": 1, "nan_at_step": 2},
        "default": {"text": "Hello."},
    }
}


class FaultTest(CommandTest):
    def serve(self, *flags):
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT))
        self.process = subprocess.Popen(
            [INVAR, "serve", "--backend", "scripted", "--script", str(script), "--port", "0",
             "--context", "1024", *flags],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.environment,
        )  # fmt: skip

        def end():
            if self.process.poll() is None:
                self.process.kill()
                self.process.communicate()

        self.addCleanup(end)
        self.address = urllib.parse.urlparse(self.process.stdout.readline().decode().strip()).netloc
        deadline = time.monotonic() + 30
        while self.ask("GET", "/health")[0] != 200:
            self.assertLess(time.monotonic(), deadline)

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.address, timeout=60)
        try:
            headers = {"Content-Type": "application/json"} if body else {}
            connection.request(method, path, body and json.dumps(body), headers)
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()
        finally:
            connection.close()

    def chat(self, key, **fields):
        body = {"messages": [{"role": "user", "content": f"KEY:{key}"}], "temperature": 0, **fields}
        return self.ask("POST", "/v1/chat/completions", body)

    def metric(self, name):
        text = self.ask("GET", "/metrics")[2]
        found = re.search(rf"^{re.escape(name)}(?:{{[^}}]*}})? (\S+)$", text, re.M)
        self.assertIsNotNone(found, name)
        return float(found[1])

    def test_bad_logits_end_one_request(self):
        self.serve()
        status, headers, text = self.chat("bad")
        self.assertEqual(status, 500)
        error = json.loads(text)["error"]
        self.assertEqual((error["code"], error["type"]), ("nan_logits", "server_error"))
        self.assertEqual(headers["x-should-retry"], "false")
        status, _, text = self.chat("bad", stream=True)
        self.assertEqual(status, 200)
        last = json.loads(text.strip().split("\n\n")[-1].removeprefix("data: "))
        self.assertEqual(last["error"]["code"], "nan_logits")
        self.assertNotIn("[DONE]", text)
        status, _, text = self.chat("default")
        self.assertEqual((status, "Hello." in text), (200, True))
        self.assertEqual(self.metric("invar_nan_logits_total"), 2)
        self.assertEqual(self.ask("GET", "/livez")[0], 200)

    def test_props_and_slots(self):
        self.serve("--parallel", "3", "--alias", "tiny")
        props = json.loads(self.ask("GET", "/props")[2])
        self.assertEqual(props["default_generation_settings"]["n_ctx"], 1024)
        self.assertEqual((props["total_slots"], props["model_alias"]), (3, "tiny"))
        self.assertEqual(props["model_path"], "script.json")
        self.assertIn("messages", props["chat_template"])
        self.assertFalse(props["is_sleeping"])
        self.assertEqual(self.ask("POST", "/props", {"a": 1})[0], 405)

        slots = json.loads(self.ask("GET", "/slots?fail_on_no_slot=1")[2])
        idle = {"id_task": -1, "n_ctx": 1024, "speculative": False, "is_processing": False, "n_decoded": 0}
        self.assertEqual(slots, [{"id": i, **idle} for i in range(3)])
        thread = threading.Thread(target=self.chat, args=("slow",), kwargs={"n": 3})
        thread.start()
        deadline = time.monotonic() + 20
        while self.ask("GET", "/slots?fail_on_no_slot=1")[0] != 503:
            self.assertLess(time.monotonic(), deadline)
        busy = json.loads(self.ask("GET", "/slots")[2])
        self.assertEqual([slot["is_processing"] for slot in busy], [True] * 3)
        thread.join()

        meta = json.loads(self.ask("GET", "/v1/models")[2])["data"][0]["meta"]
        self.assertEqual((meta["block_size"], meta["max_sequences"]), (256, 3))
        self.assertGreaterEqual(meta["num_blocks"], 4)
        self.assertEqual(meta["kv_type"], "none")
        self.assertIsNone(meta["drafter"])
        template = meta["chat_template"]
        self.assertEqual(set(template), {"source", "tools", "reasoning", "efforts", "system_anywhere"})
        self.assertTrue(template["tools"])
        self.assertEqual(
            set(json.loads(self.ask("GET", "/version")[2])), {"version", "arithmetic_id", "backend", "isa"}
        )

    def test_no_slots(self):
        self.serve("--no-slots")
        self.assertEqual(self.ask("GET", "/slots")[0], 404)

    def test_a_standstill_ends_the_process(self):
        log = self.folder / "termination"
        log.write_text("")
        self.serve("--watchdog", "1", "--termination-log", str(log))
        begin = time.monotonic()
        self.assertEqual(self.chat("slow")[0], 200)  # eight steps of 0.3 s: slow, not stuck
        self.assertGreater(time.monotonic() - begin, 1.5)

        def ask():
            try:
                self.chat("stuck")
            except (OSError, http.client.HTTPException):
                pass  # the process ended

        thread = threading.Thread(target=ask)
        thread.start()
        deadline = time.monotonic() + 20
        while self.ask("GET", "/livez")[0] == 200:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.02)
        self.assertEqual(json.loads(self.ask("GET", "/livez")[2]), {"status": "stuck"})
        self.assertEqual(self.ask("GET", "/health")[0], 503)
        self.assertEqual(self.metric("invar_watchdog_stalls_total"), 1)
        errors = self.process.communicate(timeout=20)[1].decode()
        thread.join()
        self.assertEqual(self.process.returncode, 71)
        self.assertTrue(errors.splitlines()[-1].startswith("fatal: stuck: "), errors)
        self.assertTrue(log.read_text().startswith("fatal: stuck: "))
        threads = errors.split("\nthread ")[1:]
        self.assertGreater(len(threads), 4)
        for stack in threads:
            self.assertIn("invar(", stack)
        self.assertNotIn("KEY:", errors)


if __name__ == "__main__":
    unittest.main()
