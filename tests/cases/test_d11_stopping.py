"""D11: stopping with open streams: in time, and every stream learns what became of it."""

import signal
import threading
import time
import unittest

from case_harness import PATIENCE, Server, allowance, body_of, until

CHAT = "/v1/chat/completions"
STREAMS = 20
SCRIPT = {
    # At 20 tokens a second: one ends by itself while the server drains, one never does.
    "long": {"steps": [{"text": "x", "delay_ms": 50, "repeat": 100000}]},
    "short": {"text": "x" * 20, "cut": 1, "delay_ms": 50},
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
        # Clean-ups run in turn from the last one: when a test fails the server is gone before these.
        self.addCleanup(lambda: [reader.thread.join(PATIENCE) for reader in readers])
        self.addCleanup(server.kill)
        until(lambda: all(len(reader.events) > 2 for reader in readers), "all stream")
        return server, readers

    def check_refuses(self, server):
        """It drains: what is new is refused, and what watches it learns why."""

        def ask():
            return server.post(CHAT, body_of(CHAT, "KEY:warm"))

        until(lambda: ask().status == 503, "the signal has arrived")
        answer = ask()
        self.assertEqual(answer.status, 503)
        self.assertEqual(answer.json["error"]["code"], "draining")
        self.assertGreaterEqual(int(answer.headers["Retry-After"]), 1)
        self.assertEqual(server.get("/health").status, 503)
        self.assertEqual(server.get("/health").json["status"], "draining")
        self.assertEqual(server.get("/livez").status, 200)

    def check_whole(self, reader, length):
        self.assertIsNone(reader.error)
        self.assertTrue(reader.is_done)
        text = "".join(e["choices"][0]["delta"].get("content", "") for e in reader.events[:-1])
        self.assertEqual(text, "x" * length)

    def test_drain(self):
        server, readers = self.start(["short"] * 10 + ["long"] * 10, "--drain-timeout", "8")
        begin = time.monotonic()
        server.end()
        self.check_refuses(server)
        for reader in readers[:10]:
            reader.thread.join(PATIENCE)
            self.check_whole(reader, 20)
        self.check_refuses(server)  # as long as it drains
        self.assertEqual(server.wait(), 0)
        took = time.monotonic() - begin
        self.assertGreater(took, 7.5)
        self.assertLess(took, 8 + 2 * allowance())
        for reader in readers[10:]:
            reader.thread.join(PATIENCE)
            self.assertIsNone(reader.error)
            self.assertEqual(reader.code, "draining")
            self.assertGreater(len(reader.events), 10)
        # It starts again, and nothing is left of the streams.
        again = Server(self, SCRIPT, FLAGS)
        self.assertEqual(again.post(CHAT, body_of(CHAT, "KEY:warm")).status, 200)

    def test_all_end_in_time(self):
        # It does not wait longer than needed: it would be killed.
        server, readers = self.start(["short"] * STREAMS, "--drain-timeout", str(10 * PATIENCE))
        server.end()
        self.assertEqual(server.wait(), 0)
        for reader in readers:
            reader.thread.join(PATIENCE)
            self.check_whole(reader, 20)

    def test_drain_zero(self):
        server, readers = self.start(["long"] * STREAMS, "--drain-timeout", "0")
        begin = time.monotonic()
        server.end()
        self.assertEqual(server.wait(), 0)
        self.assertLess(time.monotonic() - begin, 1 * allowance())
        for reader in readers:
            reader.thread.join(PATIENCE)
            self.assertIsNone(reader.error)
            self.assertEqual(reader.code, "draining")

    def test_second_signal(self):
        for number in (signal.SIGTERM, signal.SIGINT):
            server, readers = self.start(["long"] * STREAMS, "--drain-timeout", str(10 * PATIENCE))
            server.end(number)
            self.check_refuses(server)
            self.assertIsNone(server.process.poll())
            begin = time.monotonic()
            server.end(number)
            self.assertEqual(server.wait(), 128 + number)
            self.assertLess(time.monotonic() - begin, 1 * allowance())
            for reader in readers:
                reader.thread.join(PATIENCE)
                self.assertFalse(reader.is_done)

    def test_who_waits_is_told(self):
        server = Server(self, SCRIPT, ("--parallel", "1", "--drain-timeout", "6"))
        running = Reader(server, "long")
        until(lambda: len(running.events) > 2, "one streams")
        waiting = Reader(server, "warm")
        until(lambda: len(waiting.events) > 0, "one waits")
        server.end()
        waiting.thread.join(PATIENCE)
        self.assertEqual(waiting.code, "draining")
        self.assertEqual(server.wait(), 0)
        running.thread.join(PATIENCE)
        self.assertEqual(running.code, "draining")
        # At once, as it would never start: not with the one that is cut at the end.
        self.assertLess(waiting.ended, running.ended - 2)


if __name__ == "__main__":
    unittest.main()
