"""What the tests of the reported cases share: a server with a script or a model, requests whole and
as streams with the time of every event, and what the process holds.

INVAR_BIN names the binary, a test build. INVAR_SWEEP=full runs every test at the size that the cases
ask for; else sizes are cut to what a slow machine does in seconds."""

import http.client
import json
import os
import re
import signal
import socket
import sys
import tempfile
import time
import unittest
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "apps"))
from harness import PATIENCE, ServerProcess, need_smollm2, until  # noqa: E402, F401

FULL = os.environ.get("INVAR_SWEEP") == "full"
GENERATING = ("/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/messages")


def allowance():
    """How much longer things may take than a case allows: its times are for a machine without other
    work. By what wants to run now and in the last minute."""
    with open("/proc/loadavg", encoding="ascii") as file:
        lately, _, _, tasks, _ = file.read().split()
    return max(1.0, max(float(lately), float(tasks.split("/")[0])) / (os.cpu_count() or 1))


def steps_of(*pieces, together=False, **options):
    """Steps that say `pieces` (text or bytes), each in a step of its own or all in one."""
    pieces = [p.encode() if isinstance(p, str) else p for p in pieces]
    hexed = [p.hex() for p in pieces]
    if together:
        return [{"pieces": hexed, **options}]
    return [{"pieces": [p], **options} for p in hexed]


def cut(data, *places):
    """`data` in pieces, cut at `places`."""
    edges = [0, *sorted(places), len(data)]
    return [data[a:b] for a, b in zip(edges, edges[1:]) if a < b]


def body_of(route, prompt, max_tokens=None, **fields):
    """A request to `route`."""
    if route == "/v1/completions":
        body = {"prompt": prompt}
    elif route == "/v1/responses":
        body = {"input": prompt}
    else:
        body = {"messages": [{"role": "user", "content": prompt}]}
    if route == "/v1/messages":
        max_tokens = 1024 if max_tokens is None else max_tokens
    if max_tokens is not None:
        body["max_output_tokens" if route == "/v1/responses" else "max_tokens"] = max_tokens
    return {**body, **fields}


def text_of(route, answer):
    """The text of a whole answer."""
    if route == "/v1/chat/completions":
        return answer["choices"][0]["message"]["content"]
    if route == "/v1/completions":
        return answer["choices"][0]["text"]
    items = answer["content"] if route == "/v1/messages" else answer["output"]
    if route == "/v1/messages":
        return "".join(part["text"] for part in items if part["type"] == "text")
    return "".join(part["text"] for item in items if item["type"] == "message" for part in item["content"])


def text_delta(route, event):
    """The text that an event of a stream adds, or None."""
    if route == "/v1/messages":
        delta = event.get("delta", {})
        return delta["text"] if delta.get("type") == "text_delta" else None
    if route == "/v1/responses":
        return event["delta"] if event["type"] == "response.output_text.delta" else None
    if not event.get("choices"):
        return None
    choice = event["choices"][0]
    if route == "/v1/completions":
        return choice.get("text")
    return choice["delta"].get("content")


class Answer:
    def __init__(self, status, headers, raw):
        self.status, self.headers, self.raw = status, headers, raw

    @property
    def json(self):
        return json.loads(self.raw)


class Event:
    """One event of a stream: seconds after the request was sent, and its data."""

    def __init__(self, seconds, data):
        self.seconds, self.data = seconds, data


class Server(ServerProcess):
    """`invar serve` with a script or a model."""

    def __init__(self, owner, script=None, flags=(), model=None):
        with tempfile.TemporaryDirectory(prefix="invar-case-") as folder:
            what = [model]
            if script is not None:
                path = Path(folder) / "script.json"
                path.write_text(json.dumps(script))
                what = ["--backend", "scripted", "--script", path]
            super().__init__(owner, *what, "--alias", "case", *flags)
            self.wait_ready()

    def end(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    # ---- Requests

    def connect(self, timeout=PATIENCE):
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)

    def ask(self, method, path, body=None, headers=None):
        connection = self.connect()
        try:
            if body is not None and not isinstance(body, bytes):
                body = json.dumps(body).encode()
            headers = {"Content-Type": "application/json", **(headers or {})}
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return Answer(answer.status, answer.headers, answer.read())
        finally:
            connection.close()

    def get(self, path):
        return self.ask("GET", path)

    def post(self, path, body, **headers):
        return self.ask("POST", path, body, headers)

    def stream(self, path, body):
        """Yields events until the connection ends; the last of a good stream is [DONE] where the
        route has one. An answer that is no stream raises AssertionError."""
        connection = self.connect()
        begin = time.monotonic()
        data = json.dumps({**body, "stream": True}).encode()
        connection.request("POST", path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        try:
            kind = answer.headers["Content-Type"]
            if answer.status != 200 or kind != "text/event-stream":
                raise AssertionError(f"{answer.status} {kind} {answer.read()[:500]}")
            while line := answer.readline():
                line.decode()  # every line is UTF-8 by itself
                if line.startswith(b"data: "):
                    text = line[6:].decode().rstrip("\n")
                    value = text if text == "[DONE]" else json.loads(text)
                    yield Event(time.monotonic() - begin, value)
        finally:
            connection.close()

    def raw(self, method, path, body=b"", **headers):
        """A socket on which a request has been sent by hand."""
        sock = socket.create_connection(("127.0.0.1", self.port), PATIENCE)
        lines = [f"{method} {path} HTTP/1.1", "Host: localhost", "Content-Type: application/json"]
        headers.setdefault("Content_Length", str(len(body)))
        lines += [f"{k.replace('_', '-')}: {v}" for k, v in headers.items() if v is not None]
        sock.sendall("\r\n".join(lines).encode() + b"\r\n\r\n" + body)
        return sock

    # ---- What it says of itself

    def metrics(self):
        """{'name' or 'name{label="x"}': value}, without the labels that all have."""
        values = {}
        for line in self.get("/metrics").raw.decode().splitlines():
            if line and not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                name = re.sub(r'(model_name|engine)="[^"]*",?', "", name).replace(",}", "}")
                values[name.removesuffix("{}")] = float(value)
        return values

    def total(self, name):
        """A metric summed over its labels."""
        return sum(v for k, v in self.metrics().items() if k.split("{")[0] == name)

    def running(self):
        return self.get("/v1/requests").json["data"]

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def rss_mib(self):
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096 / 2**20


class CaseTest(unittest.TestCase):
    """One scripted server for the tests of a class."""

    script = None
    flags = ()
    model = None
    server = None

    @classmethod
    def setUpClass(cls):
        if cls.script is None and cls.model is None:
            raise unittest.SkipTest("only a base")
        model = None if cls.model is None else cls.model()
        cls.server = Server(cls, cls.script, cls.flags, model)

    def ok(self, path, body):
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, 200, answer.raw)
        return answer.json

    def error(self, path, body, status=400):
        """The error object of a refused request, whichever API's shape it has."""
        answer = self.server.post(path, body)
        self.assertEqual(answer.status, status, answer.raw[:500])
        self.assertEqual(answer.headers["Content-Type"], "application/json")
        error = answer.json["error"]
        if "/messages" not in path:
            self.assertEqual(set(error) & {"message", "type", "param", "code"}, {"message", "type", "param", "code"})
        return error

    def stream(self, path, body):
        """All events of a stream that ends as it should."""
        events = list(self.server.stream(path, body))
        last = events[-1].data
        if path == "/v1/messages":
            self.assertEqual(last["type"], "message_stop")
        elif path == "/v1/responses":
            self.assertIn(last["type"], ("response.completed", "response.incomplete"))
        else:
            self.assertEqual(last, "[DONE]")
            events.pop()
        return events

    def assert_quick(self, times, limit):
        """What a case wants within `limit` seconds: the best of several, as a machine may be busy for
        a moment, and longer on one that is busy now."""
        self.assertLess(min(times), limit * allowance(), times)

    def stream_text(self, path, body):
        """The text deltas of a stream."""
        deltas = [text_delta(path, event.data) for event in self.stream(path, body)]
        return [delta for delta in deltas if delta is not None]
