"""What the socket tests share: the test server as a process, and HTTP by hand over raw sockets."""

import json
import os
import signal
import socket
import subprocess
import time
import unittest

PROGRAM = os.environ.get("HTTP_TEST_SERVER", "")


class Server:
    """http_test_server with NAME=VALUE options; stopped at the end of the test."""

    def __init__(self, test, preexec=None, **options):
        if not PROGRAM:
            test.fail("HTTP_TEST_SERVER names the test server; it is not set")
        self.process = subprocess.Popen(
            [PROGRAM, *(f"{name}={value}" for name, value in options.items())],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            preexec_fn=preexec,
            # ThreadSanitizer would sleep a second at the end, and our limits are shorter.
            env={**os.environ, "TSAN_OPTIONS": os.environ.get("TSAN_OPTIONS", "") + " atexit_sleep_ms=0"},
        )
        self.test = test
        test.addCleanup(self.kill)
        line = self.process.stdout.readline().decode()
        if not line.startswith("port "):
            test.fail(f"the test server does not start: {line}{self.process.stderr.read().decode()}")
        self.port = int(line.split()[1])
        self.sanitized = line.endswith(" sanitized\n")

    def kill(self):
        if self.process.poll() is None:
            self.process.kill()
        self.errors = self.process.communicate()[1].decode()

    def signal(self, number=signal.SIGTERM):
        self.process.send_signal(number)

    def connect(self, source=None):
        client = Client(socket.create_connection(("127.0.0.1", self.port), 20, source))
        self.test.addCleanup(client.sock.close)
        return client

    def ask(self, head, body=b"", **headers):
        with Client(socket.create_connection(("127.0.0.1", self.port), 20)) as client:
            client.send(request(head, body, **headers))
            return client.response(head.startswith("HEAD"))

    def stats(self):
        return self.ask("GET /stats").json()

    def wait_stats(self, seconds=10, **wanted):
        """Until the counts are as wanted; how long it took."""
        begin = time.monotonic()
        while True:
            found = self.stats()
            if all(found[name] == value for name, value in wanted.items()):
                return time.monotonic() - begin
            if time.monotonic() - begin > seconds:
                raise AssertionError(f"wanted {wanted}, found {found}")
            time.sleep(0.005)

    def rss_mib(self):
        if self.sanitized:  # its allocator keeps what was freed
            return 0
        with open(f"/proc/{self.process.pid}/statm", encoding="ascii") as file:
            return int(file.read().split()[1]) * 4096 / 2**20

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def threads(self):
        return len(os.listdir(f"/proc/{self.process.pid}/task"))


def request(head, body=b"", **headers):
    """"POST /path" with a body and its length; header names with _ for -."""
    lines = {"Host": "localhost"}
    if head.startswith("POST"):
        lines["Content-Type"] = "application/json"
        lines["Content-Length"] = str(len(body))
    lines.update({name.replace("_", "-"): value for name, value in headers.items()})
    text = head + " HTTP/1.1\r\n"
    text += "".join(f"{name}: {value}\r\n" for name, value in lines.items() if value is not None)
    return text.encode() + b"\r\n" + body


class Response:
    def __init__(self, status, headers, body):
        self.status, self.headers, self.body = status, headers, body

    def json(self):
        return json.loads(self.body)

    def code(self):
        return self.json()["error"].get("code")


class Client:
    def __init__(self, sock):
        self.sock = sock
        self.buffer = b""

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.sock.close()

    def send(self, data):
        self.sock.sendall(data)

    def fill(self):
        data = self.sock.recv(65536)
        self.buffer += data
        return bool(data)

    def take(self, count):
        while len(self.buffer) < count:
            if not self.fill():
                raise EOFError(self.buffer)
        data, self.buffer = self.buffer[:count], self.buffer[count:]
        return data

    def line(self):
        while b"\r\n" not in self.buffer:
            if not self.fill():
                raise EOFError(self.buffer)
        line, self.buffer = self.buffer.split(b"\r\n", 1)
        return line

    def head(self):
        status = int(self.line().split()[1])
        headers = {}
        while line := self.line():
            name, value = line.decode().split(": ", 1)
            headers[name.lower()] = value
        return Response(status, headers, b"")

    def chunk(self):
        data = self.take(int(self.line(), 16))
        if self.take(2) != b"\r\n":
            raise AssertionError("a chunk does not end where it says")
        return data

    def response(self, without_body=False):
        response = self.head()
        if without_body or response.status in (100, 204):
            return response
        if "content-length" in response.headers:
            response.body = self.take(int(response.headers["content-length"]))
        elif response.headers.get("transfer-encoding") == "chunked":
            while data := self.chunk():
                response.body += data
        else:
            while self.fill():
                pass
            response.body, self.buffer = self.buffer, b""
        return response

    def closed(self):
        """Whether the server closes with nothing more to say (waits for it)."""
        try:
            return not self.buffer and not self.fill()
        except ConnectionResetError:
            return True


class ServerTest(unittest.TestCase):
    def serve(self, **options):
        return Server(self, **options)

    def assert_refused(self, response, status, code):
        self.assertEqual((response.status, response.code()), (status, code), response.body)
