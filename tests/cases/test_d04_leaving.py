"""D4: a client that leaves while its prompt is processed, or while it waits, costs nothing more."""

import json
import time
import unittest

from case_harness import FULL, GENERATING, CaseTest, body_of, patience

PROMPT = "p" * 990 + " KEY:slow"  # 5 s at 5 ms a token
AT_ONCE = 0.2  # seconds


class LeavingTest(CaseTest):
    script = {
        "slow": {"prefill_ms_per_token": 5, "text": "too late"},
        "streams": {"text": "x" * 2000, "cut": 1, "delay_ms": 20},
        "quick": {"text": "quick"},
    }
    flags = ("--parallel", "1", "--context", "4096")

    def send(self, route, text, **fields):
        body = json.dumps(body_of(route, text, **fields)).encode()
        return self.server.raw("POST", route, body)

    def check_left(self, expected):
        """So many have left since the start."""
        self.server.wait(lambda: self.left() == expected, AT_ONCE, "they are counted")

    def left(self):
        return self.server.total("invar_client_disconnections_total")

    def used_blocks(self):
        return self.server.metrics()['invar_kv_blocks{state="used"}']

    def check_gone(self, begin):
        """Everything of the request that left at `begin` is free."""
        self.server.wait(lambda: not self.server.running(), AT_ONCE, "the request list is empty")
        self.server.wait(lambda: self.used_blocks() == 0, AT_ONCE, "its blocks are free")
        self.assertLess(time.monotonic() - begin, (AT_ONCE + 0.1) * patience())

    def leave_in_prompt(self, route, seconds, **fields):
        left = self.left()
        sock = self.send(route, PROMPT, cache_prompt=False, **fields)
        time.sleep(seconds)
        states = [request["state"] for request in self.server.running()]
        self.assertEqual(states, ["prefill"])
        self.assertGreater(self.used_blocks(), 0)
        sock.close()
        self.check_gone(time.monotonic())
        self.check_left(left + 1)

    def test_the_case(self):
        for stream in (True, False):
            self.leave_in_prompt("/v1/chat/completions", 0.5, stream=stream)

    def test_every_route(self):
        for route in GENERATING[1:]:
            for stream in (True, False):
                self.leave_in_prompt(route, 0.15, stream=stream)

    def test_several_choices(self):
        left = self.left()
        sock = self.send("/v1/chat/completions", PROMPT, n=3)
        time.sleep(0.15)
        sock.close()
        self.check_gone(time.monotonic())
        self.check_left(left + 1)

    def test_who_waited_begins(self):
        sock = self.send("/v1/chat/completions", PROMPT, stream=True)
        time.sleep(0.1)
        waiting = self.server.stream("/v1/chat/completions", body_of("/v1/chat/completions", "KEY:quick"))
        first = next(waiting)  # the role comes at once
        self.assertEqual(first.data["choices"][0]["delta"]["role"], "assistant")
        self.server.wait(lambda: len(self.server.running()) == 2, 1, "two requests")
        self.assertEqual({r["state"] for r in self.server.running()}, {"prefill", "queued"})
        sock.close()
        begin = time.monotonic()
        self.assertEqual(next(waiting).data["choices"][0]["delta"]["content"], "quick")
        self.assertLess(time.monotonic() - begin, AT_ONCE * patience())
        waiting.close()

    def test_ten_in_a_row_leave_nothing(self):
        self.leave_in_prompt("/v1/chat/completions", 0.1)
        time.sleep(0.1)
        before = self.server.threads(), self.server.descriptors()
        for i in range(10):
            self.leave_in_prompt("/v1/chat/completions", 0.5 if FULL else 0.1, stream=i % 2 == 0)
        self.server.wait(lambda: (self.server.threads(), self.server.descriptors()) <= before, 2, "threads and descriptors go")

    def test_who_leaves_the_queue_never_starts(self):
        for stream in (True, False):
            left = self.left()
            running = self.send("/v1/chat/completions", "KEY:streams", stream=True)
            self.server.wait(lambda: [r["state"] for r in self.server.running()] == ["decode"], 2, "one runs")
            queued = self.send("/v1/chat/completions", PROMPT, stream=stream, cache_prompt=False)
            self.server.wait(lambda: len(self.server.running()) == 2, 2, "one waits")
            self.assertEqual(self.server.running()[0]["state"], "queued")
            computed = self.server.metrics()["invar_prompt_tokens_total"]
            queued.close()
            self.server.wait(lambda: len(self.server.running()) == 1, AT_ONCE, "the queue is empty")
            running.close()
            self.check_gone(time.monotonic())
            self.check_left(left + 2)
            self.assertEqual(self.server.metrics()["invar_prompt_tokens_total"], computed)

    def test_a_client_that_leaves_its_stream(self):
        for route in GENERATING:
            left = self.left()
            stream = self.server.stream(route, body_of(route, "KEY:streams"))
            for _ in range(5):
                next(stream)
            stream.close()
            self.check_gone(time.monotonic())
            self.check_left(left + 1)
        self.assertEqual(self.server.post("/v1/chat/completions", body_of("/v1/chat/completions", "KEY:quick")).status, 200)


if __name__ == "__main__":
    unittest.main()
