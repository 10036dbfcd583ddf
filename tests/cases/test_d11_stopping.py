"""D11: stopping with open streams: in time, and every stream learns what became of it."""

import signal
import threading
import time
import unittest

from case_harness import Server, body_of, patience

CHAT = "/v1/chat/completions"
STREAMS = 20
SCRIPT = {
    "long": {"text": "x" * 200, "cut": 1, "delay_ms": 50},  # 10 s at 20 tokens a second
    "short": {"text": "x" * 40, "cut": 1, "delay_ms": 50},
    "slow": {"prefill_ms_per_token": 5, "text": "x"},
    "warm": {"text": "w"},
}
FLAGS = ("--parallel", str(STREAMS), "--context", "4096")


class Reader:
    """A stream read to its end on a thread of its own."""

    def __init__(self, server, key):
        self.events, self.error, self.ended = [], None, None
        self.stream = server.stream(CHAT, body_of(CHAT, "KEY:" + key))
        self.thread = threading.Thread(target=self.read)
        self.thread.start()

    def read(self):
        try:
            for event in self.stream:
                self.events.append(event.data)
        except (OSError, ValueError, AssertionError) as error:
            self.error = error
        self.ended = time.monotonic()

    @property
    def is_done(self):
        return bool(self.events) and self.events[-1] == "[DONE]"

    @property
    def code(self):
        """Of the error event that ends it."""
        last = self.events[-1] if self.events else {}
        return last["error"]["code"] if isinstance(last, dict) and "error" in last else None


class StoppingTest(unittest.TestCase):
    def start(self, keys, *flags):
        server = Server(self, SCRIPT, (*FLAGS, *flags))
        readers = [Reader(server, key) for key in keys]
        self.addCleanup(lambda: [reader.thread.join(30) for reader in readers])
        server.wait(lambda: all(len(reader.events) > 2 for reader in readers), 20, "all stream")
        return server, readers

    def check_refuses(self, server):
        answer = server.post(CHAT, body_of(CHAT, "KEY:warm"))
        self.assertEqual(answer.status, 503)
        self.assertEqual(answer.json["error"]["code"], "draining")
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
        self.assertEqual(server.get("/health").status, 503)
        self.assertEqual(server.get("/health").json["status"], "draining")
        self.assertEqual(server.get("/livez").status, 200)

    def wait_exit(self, server, begin, seconds):
        code = server.process.wait(timeout=30)
        self.assertLess(time.monotonic() - begin, seconds + patience() - 1)
        return code

    def check_whole(self, reader, length):
        self.assertIsNone(reader.error)
        self.assertTrue(reader.is_done)
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in reader.events[:-1])
        self.assertEqual(text, "x" * length)

    def test_drain(self):
        server, readers = self.start(["short"] * 10 + ["long"] * 10, "--drain-timeout", "3")
        begin = time.monotonic()
        server.end()
        time.sleep(0.05)
        self.check_refuses(server)
        self.assertLess(time.monotonic() - begin, 0.5 * patience())
        time.sleep(1)
        self.check_refuses(server)  # as long as it drains
        self.assertEqual(self.wait_exit(server, begin, 4), 0)
        for reader in readers:
            reader.thread.join(5)
        for reader in readers[:10]:
            self.check_whole(reader, 40)
        for reader in readers[10:]:
            self.assertIsNone(reader.error)
            self.assertEqual(reader.code, "draining")
            self.assertGreater(len(reader.events), 10)
        # It starts again, and nothing is left of the streams.
        again = Server(self, SCRIPT, FLAGS)
        self.assertEqual(again.post(CHAT, body_of(CHAT, "KEY:warm")).status, 200)

    def test_all_end_in_time(self):
        server, readers = self.start(["short"] * STREAMS, "--drain-timeout", "20")
        begin = time.monotonic()
        server.end()
        self.assertEqual(self.wait_exit(server, begin, 6), 0)  # it does not wait longer than needed
        for reader in readers:
            reader.thread.join(5)
            self.check_whole(reader, 40)

    def test_drain_zero(self):
        server, readers = self.start(["long"] * STREAMS, "--drain-timeout", "0")
        begin = time.monotonic()
        server.end()
        self.assertEqual(self.wait_exit(server, begin, 1), 0)
        for reader in readers:
            reader.thread.join(5)
            self.assertIsNone(reader.error)
            self.assertEqual(reader.code, "draining")

    def test_second_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server, readers = self.start(["long"] * STREAMS, "--drain-timeout", "60")
            server.end(number)
            time.sleep(0.3)
            self.assertIsNone(server.process.poll())
            begin = time.monotonic()
            server.end(number)
            self.assertEqual(self.wait_exit(server, begin, 1), 128 + number)
            for reader in readers:
                reader.thread.join(5)
                self.assertFalse(reader.is_done)

    def test_who_waits_is_told(self):
        server = Server(self, SCRIPT, ("--parallel", "1", "--drain-timeout", "2"))
        running = Reader(server, "long")
        server.wait(lambda: len(running.events) > 2, 20, "one streams")
        waiting = Reader(server, "warm")
        server.wait(lambda: len(waiting.events) > 0, 5, "one waits")
        begin = time.monotonic()
        server.end()
        waiting.thread.join(10)
        self.assertEqual(waiting.code, "draining")
        self.assertLess(waiting.ended - begin, min(1.5, 0.5 * patience()))  # at once: it would never start
        self.assertEqual(self.wait_exit(server, begin, 3), 0)
        running.thread.join(5)
        self.assertEqual(running.code, "draining")


if __name__ == "__main__":
    unittest.main()
