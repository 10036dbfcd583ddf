"""What a server does when the engine fails it: bad logits end one request, a standstill the process.
Over the scripted backend (docs/scripted-backend.md)."""

import http.client
import json
import re
import threading
import time
import unittest
from pathlib import Path

from harness import INVAR, PATIENCE, CommandTest, ServerProcess, until

SCRIPT = {
    "scripts": {
        "stuck": {"text": "never", "delay_ms": 600000},
        "slow": {"text": "12345678", "cut": 1, "delay_ms": 300},
        "long": {"steps": [{"pieces": ["61"], "delay_ms": 50, "repeat": 10000}]},
        "bad": {"text": "abcdef", "cut": 1, "nan_at_step": 2},
        "default": {"text": "Hello."},
    }
}


class FaultTest(CommandTest):
    def serve(self, *flags):
        script = self.folder / "script.json"
        script.write_text(json.dumps(SCRIPT))
        self.server = ServerProcess(
            self, "--backend", "scripted", "--script", script, "--context", "1024", *flags, environment=self.environment
        ).wait_ready()

    def ask(self, method, path, body=None):
        connection = http.client.HTTPConnection(self.server.netloc, timeout=PATIENCE)
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
        long = http.client.HTTPConnection(self.server.netloc, timeout=PATIENCE)
        self.addCleanup(long.close)
        body = {"messages": [{"role": "user", "content": "KEY:long"}], "n": 3}
        long.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        until(lambda: self.ask("GET", "/slots?fail_on_no_slot=1")[0] == 503, "no slot is free")
        busy = json.loads(self.ask("GET", "/slots")[2])
        self.assertEqual([slot["is_processing"] for slot in busy], [True] * 3)
        long.close()

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

        # Probes and scrapes see it between the stall and the end: the last answers of each.
        last = {}

        def ask(path):
            try:
                if path is None:
                    self.chat("stuck")
                while path:
                    last[path] = self.ask("GET", path)
                    time.sleep(0.02)
            except (OSError, http.client.HTTPException):
                pass  # the process ended

        threads = [threading.Thread(target=ask, args=(path,)) for path in (None, "/livez", "/health", "/metrics")]
        for thread in threads:
            thread.start()
        self.assertEqual(self.server.wait(), 71)
        for thread in threads:
            thread.join()
        self.assertEqual((last["/livez"][0], json.loads(last["/livez"][2])), (500, {"status": "stuck"}))
        self.assertEqual(last["/health"][0], 503)
        self.assertRegex(last["/metrics"][2], r"(?m)^invar_watchdog_stalls_total\S* 1$")
        errors = self.server.errors()
        self.assertTrue(errors.splitlines()[-1].startswith("fatal: stuck: "), errors)
        self.assertTrue(log.read_text().startswith("fatal: stuck: "))
        threads = errors.split("\nthread ")[1:]
        self.assertGreater(len(threads), 4)
        for stack in threads:
            self.assertIn(Path(INVAR).name + "(", stack)
        self.assertNotIn("KEY:", errors)


if __name__ == "__main__":
    unittest.main()
