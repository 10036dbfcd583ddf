"""D10: bad bodies: the right status and error object at once, no memory kept, and the next request
works."""

import json
import socket
import threading
import time
import unittest

from case_harness import FULL, PATIENCE, CaseTest, body_of

CHAT = "/v1/chat/completions"
LIMIT = 1 << 20
GOOD = b'"messages":[{"role":"user","content":"KEY:hello"}]'

BAD = {
    "empty": b"",
    "open": b"{",
    "list": b"[]",
    "string": b'"x"',
    "null": b"null",
    "brackets": b"[" * 200_000,
    "closed brackets": b"[" * 200_000 + b"]" * 200_000,
    "deep value": b'{"messages":' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    "bytes": b'{"messages":[{"role":"user","content":"\xc3\x28"}]}',
    "messages": b'{"messages":1}',
    "temperature": b'{"temperature":"hot",' + GOOD + b"}",
    "overflow": b'{"temperature":1e999,' + GOOD + b"}",
    "n": b'{"n":-1,' + GOOD + b"}",
    "huge n": b'{"n":99999999999999999999,' + GOOD + b"}",
    "twice": b'{"n":1,"n":1,' + GOOD + b"}",
    "twice inside": b'{"messages":[{"role":"user","role":"user","content":"x"}]}',
    "tail": b"{" + GOOD + b"} {}",
    "comma": b"{" + GOOD + b",}",
    "comment": b"{/**/" + GOOD + b"}",
    "nan": b'{"temperature":NaN,' + GOOD + b"}",
    "nul": b"{\0" + GOOD + b"}",
    "many nodes": b'{"messages":[' + b"1," * 200_000 + b"1]}",
    "empty messages": b'{"messages":[]}',
    "role": b'{"messages":[{"role":"owner","content":"x"}]}',
}
PARAMS = {"messages": "messages", "temperature": "temperature", "n": "n", "huge n": "n"}


class BodiesTest(CaseTest):
    script = {"hello": {"text": "hello"}}
    flags = ("--max-body-bytes", str(LIMIT))

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        # Said more than comes: found after 30 s, while everything else runs.
        cls.slow = cls.server.raw("POST", CHAT, b"{" + GOOD, Content_Length="200")
        cls.slow_took = []
        begin = time.monotonic()

        def watch():
            cls.slow.recv(1, socket.MSG_PEEK)
            cls.slow_took.append(time.monotonic() - begin)

        cls.slow_watch = threading.Thread(target=watch)
        cls.slow_watch.start()
        cls.addClassCleanup(cls.slow.close)

    def answer_to(self, sock):
        """Status, error object and seconds since now."""
        begin = time.monotonic()
        raw = b""
        while b"\r\n\r\n" not in raw:
            raw += self.some(sock)
        head, body = raw.split(b"\r\n\r\n", 1)
        length = next(int(h.split(b":")[1]) for h in head.split(b"\r\n") if h.lower().startswith(b"content-length"))
        while len(body) < length:
            body += self.some(sock)
        sock.close()
        return int(head.split()[1]), json.loads(body)["error"], time.monotonic() - begin

    def some(self, sock):
        data = sock.recv(65536)
        self.assertNotEqual(data, b"", "closed without an answer")
        return data

    def check(self, name, body, status=400, **headers):
        sock = self.server.raw("POST", CHAT, body, **headers)
        found, error, seconds = self.answer_to(sock)
        self.assertEqual(found, status, (name, error))
        self.assertEqual(set(error), {"message", "type", "param", "code"}, name)
        self.assertNotEqual(error["message"], "", name)
        if name in PARAMS:
            self.assertEqual(error["param"], PARAMS[name])
        return seconds

    def check_works(self):
        answer = self.ok(CHAT, body_of(CHAT, "KEY:hello"))
        self.assertEqual(answer["choices"][0]["message"]["content"], "hello")

    def test_the_case(self):
        for name, body in BAD.items():
            with self.subTest(name):
                self.assert_quick([self.check(name, body) for _ in range(3)], 0.1)
                self.check_works()

    def test_every_route(self):
        for route in ("/v1/completions", "/v1/responses", "/v1/messages", "/tokenize", "/detokenize",
                      "/v1/messages/count_tokens"):  # fmt: skip
            for name in ("empty", "open", "list", "brackets", "bytes", "twice", "overflow"):
                answer = self.server.post(route, BAD[name])
                self.assertEqual(answer.status, 400, (route, name, answer.raw[:200]))
                self.assertIn("message", answer.json["error"])

    def test_too_large(self):
        self.check("declared", b"x" * 10, 413, Content_Length=str(LIMIT + 1))
        self.check_works()
        # Without a length: counted.
        chunk = b"10000\r\n" + b" " * 65536 + b"\r\n"
        sock = self.server.raw("POST", CHAT, b"", Content_Length=None, Transfer_Encoding="chunked")
        try:
            for _ in range(LIMIT // 65536 + 1):
                sock.sendall(chunk)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it was answered already
        self.assertEqual(self.answer_to(sock)[0], 413)
        self.check_works()
        self.assertEqual(self.server.post(CHAT, b" " * (LIMIT - 100) + b"{" + GOOD + b"}").status, 200)

    def test_closed_before_the_end(self):
        for _ in range(20):
            sock = self.server.raw("POST", CHAT, b"{" + GOOD, Content_Length="200")
            sock.shutdown(socket.SHUT_WR)
            sock.close()
        self.check_works()

    def test_a_thousand_leave_no_memory(self):
        for body in BAD.values():  # what the first ones allocate for good
            self.server.post(CHAT, body)
        self.check_works()
        before = self.server.rss_mib()
        bodies = list(BAD.values())
        for i in range(1000 if FULL else 300):
            self.server.post(CHAT, bodies[i % len(bodies)])
        self.check_works()
        self.assertLess(self.server.rss_mib(), before + 10)

    def test_zz_less_than_was_said(self):
        self.slow_watch.join(PATIENCE)
        status, error, _ = self.answer_to(self.slow)
        self.assertEqual(status, 408, error)
        self.assertGreater(self.slow_took[0], 25)
        self.assertLess(self.slow_took[0], 60)
        self.check_works()


if __name__ == "__main__":
    unittest.main()
