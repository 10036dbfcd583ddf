"""D4: a client that leaves while its prompt is processed, or while it waits, costs nothing more."""

import json
import time
import unittest

from case_harness import FULL, GENERATING, CaseTest, body_of, until

PROMPT = "p" * 3900 + " KEY:slow"  # 20 s at 5 ms a token, in steps of 80 ms
AT_ONCE = 0.2  # seconds


class LeavingTest(CaseTest):
    script = {
        "slow": {"prefill_ms_per_token": 5, "text": "too late"},
        "streams": {"steps": [{"text": "x", "delay_ms": 20, "repeat": 100000}]},
        "quick": {"text": "quick"},
    }
    flags = ("--parallel", "1", "--context", "8192")

    def send(self, route, text, **fields):
        body = json.dumps(body_of(route, text, **fields)).encode()
        return self.server.raw("POST", route, body)

    def check_left(self, expected):
        """So many have left since the start: none of them ended by itself."""
        until(lambda: self.left() == expected, "they are counted")

    def left(self):
        return self.server.total("invar_client_disconnections_total")

    def states(self):
        return [request["state"] for request in self.server.running()]

    def used_blocks(self):
        return self.server.metrics()['invar_kv_blocks{state="used"}']

    def gone(self):
        """Waits until everything of the request that leaves now is free; how long that takes."""
        begin = time.monotonic()
        until(lambda: not self.server.running(), "the request list is empty")
        until(lambda: self.used_blocks() == 0, "its blocks are free")
        return time.monotonic() - begin

    def leave_in_prompt(self, route, seconds=0, **fields):
        left = self.left()
        sock = self.send(route, PROMPT, cache_prompt=False, **fields)
        until(lambda: self.states() == ["prefill"] and self.used_blocks() > 0, "its prompt is processed")
        time.sleep(seconds)
        sock.close()
        took = self.gone()
        self.check_left(left + 1)
        return took

    def test_the_case(self):
        times = []
        for stream in (True, False) * 3:
            times.append(self.leave_in_prompt("/v1/chat/completions", 0.5 if FULL else 0.1, stream=stream))
        self.assert_quick(times, AT_ONCE)

    def test_every_route(self):
        for route in GENERATING[1:]:
            self.assert_quick([self.leave_in_prompt(route, stream=stream) for stream in (True, False) * 2], AT_ONCE)

    def test_several_choices(self):
        times = []
        for _ in range(3):
            left = self.left()
            sock = self.send("/v1/chat/completions", PROMPT, n=3, cache_prompt=False)
            until(lambda: "prefill" in self.states(), "its prompt is processed")
            sock.close()
            times.append(self.gone())
            self.check_left(left + 1)
        self.assert_quick(times, AT_ONCE)

    def test_who_waited_begins(self):
        times = []
        for _ in range(3):
            sock = self.send("/v1/chat/completions", PROMPT, stream=True, cache_prompt=False)
            until(lambda: self.states() == ["prefill"], "its prompt is processed")
            waiting = self.server.stream("/v1/chat/completions", body_of("/v1/chat/completions", "KEY:quick"))
            first = next(waiting)  # the role comes at once
            self.assertEqual(first.data["choices"][0]["delta"]["role"], "assistant")
            until(lambda: len(self.server.running()) == 2, "two requests")
            self.assertEqual(set(self.states()), {"prefill", "queued"})
            sock.close()
            begin = time.monotonic()
            self.assertEqual(next(waiting).data["choices"][0]["delta"]["content"], "quick")
            times.append(time.monotonic() - begin)
            waiting.close()
        self.assert_quick(times, AT_ONCE)

    def test_ten_in_a_row_leave_nothing(self):
        def held():
            return self.server.threads(), self.server.descriptors()

        self.leave_in_prompt("/v1/chat/completions")
        before = held()
        for i in range(10):
            self.leave_in_prompt("/v1/chat/completions", 0.5 if FULL else 0.02, stream=i % 2 == 0)
        until(lambda: all(now <= then for now, then in zip(held(), before)), f"no more than {before} are held")

    def test_who_leaves_the_queue_never_starts(self):
        times = []
        for stream in (True, False) * 2:
            left = self.left()
            running = self.send("/v1/chat/completions", "KEY:streams", stream=True)
            until(lambda: self.states() == ["decode"], "one runs")
            queued = self.send("/v1/chat/completions", PROMPT, stream=stream, cache_prompt=False)
            until(lambda: len(self.server.running()) == 2, "one waits")
            self.assertEqual(self.states(), ["queued", "decode"])
            computed = self.server.metrics()["invar_prompt_tokens_total"]
            queued.close()
            times.append(until(lambda: len(self.server.running()) == 1, "the queue is empty"))
            running.close()
            self.gone()
            self.check_left(left + 2)
            self.assertEqual(self.server.metrics()["invar_prompt_tokens_total"], computed)
        self.assert_quick(times, AT_ONCE)

    def test_a_client_that_leaves_its_stream(self):
        times = []
        for route in GENERATING:
            left = self.left()
            stream = self.server.stream(route, body_of(route, "KEY:streams"))
            for _ in range(5):
                next(stream)
            stream.close()
            times.append(self.gone())
            self.check_left(left + 1)
        self.assert_quick(times, AT_ONCE)
        self.assertEqual(self.server.post("/v1/chat/completions", body_of("/v1/chat/completions", "KEY:quick")).status, 200)


if __name__ == "__main__":
    unittest.main()
