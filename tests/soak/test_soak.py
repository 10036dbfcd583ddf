"""Many clients that behave in every way, for a while: the server answers all of them rightly, and
what it holds (memory, descriptors, threads, pages) does not grow.

INVAR_SOAK_SECONDS: how long (15; a release is soaked for 600 with INVAR_SOAK_CLIENTS=64).
"""

import asyncio
import json
import os
import random
import re
import sys
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "apps"))
from harness import PATIENCE, ServerProcess, until  # noqa: E402

SECONDS = float(os.environ.get("INVAR_SOAK_SECONDS", "15"))
CLIENTS = int(os.environ.get("INVAR_SOAK_CLIENTS", "64"))
AT_LEAST = 4  # requests of a client, however slow the machine

CALL = '<tool_call>\n{"name": "ping", "arguments": {"a": [1, "}"]}}\n</tool_call>'
SCRIPTS = {
    "short": {"text": "Grüße, 世界!", "cut": 2},
    "long": {"text": "All work and no play. " * 30, "cut": 3, "delay_ms": 1},
    "think": {"text": "<think>\nSky.\n</think>\n\nBlue.", "cut": 3},
    "call": {"text": "I look. " + CALL, "cut": 4},
    "slow prompt": {"text": "Done.", "prefill_ms_per_token": 0.2},
    "fault": {"text": "Hello there.", "cut": 1, "fail_at_step": 3},
    "nan": {"text": "Hello there.", "cut": 1, "nan_at_step": 3},
}
TOOLS = [{"type": "function", "function": {"name": "ping", "parameters": {"type": "object"}}}]


class Clients:
    def __init__(self, port, end):
        self.port, self.end = port, end
        self.counts = {}
        self.wrong = []

    async def request(self, path, body, method="POST"):
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        payload = body if isinstance(body, bytes) else json.dumps(body).encode()
        writer.write(
            f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(payload)}\r\nConnection: close\r\n\r\n".encode()
            + payload
        )
        return reader, writer

    async def whole(self, path, body, method="POST"):
        reader, writer = await self.request(path, body, method)
        raw = await reader.read()
        writer.close()
        return int(raw[9:12]), raw.partition(b"\r\n\r\n")[2].decode(errors="replace")

    def expect(self, what, is_right, found):
        self.counts[what] = self.counts.get(what, 0) + 1
        if not is_right:
            self.wrong.append((what, found))

    @staticmethod
    def body(rng, key, **fields):
        filler = "context " * rng.randrange(60)
        messages = [{"role": "user", "content": filler + "KEY:" + key}]
        return {"messages": messages, "max_tokens": 800, **fields}

    async def chat(self, rng):
        status, text = await self.whole("/v1/chat/completions", self.body(rng, "short"))
        self.expect("chat", status == 200 and "Grüße, 世界!" in text, text)

    async def stream(self, rng):
        status, text = await self.whole("/v1/chat/completions", self.body(rng, "long", stream=True))
        self.expect("stream", status == 200 and text.count("data: [DONE]") == 1, text[-300:])

    async def choices(self, rng):
        status, text = await self.whole("/v1/chat/completions", self.body(rng, "think", n=3))
        self.expect("choices", status == 200 and text.count('"Blue."') == 3, text)

    async def tools(self, rng):
        body = self.body(rng, "call", tools=TOOLS)
        status, text = await self.whole("/v1/chat/completions", body)
        self.expect("tools", status == 200 and '"finish_reason":"tool_calls"' in text, text)

    async def messages(self, rng):
        status, text = await self.whole("/v1/messages", self.body(rng, "think", stream=True))
        self.expect("messages", status == 200 and "event: message_stop" in text, text[-300:])

    async def responses(self, rng):
        body = {"input": "KEY:short", "stream": True}
        status, text = await self.whole("/v1/responses", body)
        self.expect("responses", status == 200 and "event: response.completed" in text, text[-300:])

    async def leave(self, rng):
        key = rng.choice(("long", "slow prompt"))
        fields = {"stream": True} if rng.random() < 0.7 else {}
        _, writer = await self.request("/v1/chat/completions", self.body(rng, key, **fields))
        await asyncio.sleep(rng.random() * 0.2)
        if rng.random() < 0.5:
            writer.transport.abort()
        else:
            writer.close()
        self.expect("leave", True, "")

    async def read_slowly(self, rng):
        body = self.body(rng, "long", stream=True)
        reader, writer = await self.request("/v1/chat/completions", body)
        raw = b""
        while piece := await reader.read(2000):
            raw += piece
            await asyncio.sleep(0.01)
        writer.close()
        self.expect("slow reader", b"data: [DONE]" in raw, raw[-300:])

    async def bad_body(self, rng):
        body = rng.choice((b"", b"{", b"[]", b'{"messages":1}', b"[" * 5000, b'{"n":-1}', b'"\xc3("'))
        status, text = await self.whole("/v1/chat/completions", body)
        self.expect("bad body", status == 400 and '"error"' in text, text)

    async def fault(self, rng):
        key = rng.choice(("fault", "nan"))
        status, text = await self.whole("/v1/chat/completions", self.body(rng, key))
        self.expect("fault", status == 500 and '"error"' in text, text)

    async def half_a_request(self, rng):
        _, writer = await asyncio.open_connection("127.0.0.1", self.port)
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-"[: rng.randrange(70)])
        await asyncio.sleep(rng.random() * 0.1)
        writer.close()
        self.expect("half a request", True, "")

    async def behave(self, seed):
        rng = random.Random(seed)
        kinds = (
            [self.chat] * 4
            + [self.stream, self.choices, self.tools, self.messages, self.responses]
            + [self.leave] * 3
            + [self.read_slowly, self.bad_body, self.fault, self.half_a_request]
        )
        num_done = 0
        while time.monotonic() < self.end or num_done < AT_LEAST:
            num_done += 1
            try:
                await asyncio.wait_for(rng.choice(kinds)(rng), 2 * PATIENCE)
            except (OSError, ValueError, asyncio.TimeoutError) as error:
                self.wrong.append(("exception", repr(error)))


class SoakTest(unittest.TestCase):
    def setUp(self):
        with tempfile.TemporaryDirectory(prefix="invar-soak-") as folder:
            script = Path(folder) / "script.json"
            script.write_text(json.dumps({"scripts": SCRIPTS}))
            self.server = ServerProcess(self, "--backend", "scripted", "--script", script, "--parallel", "8")
            self.server.wait_ready()

    def held(self):
        """MiB resident, descriptors, threads."""
        proc = Path(f"/proc/{self.server.process.pid}")
        status = (proc / "status").read_text()
        rss = int(re.search(r"VmRSS:\s+(\d+)", status)[1]) / 1024
        threads = int(re.search(r"Threads:\s+(\d+)", status)[1])
        return rss, len(list((proc / "fd").iterdir())), threads

    def requests(self):
        with urllib.request.urlopen(self.server.address + "/v1/requests", timeout=PATIENCE) as answer:
            return json.load(answer)["data"]

    def run_clients(self, seconds, seed):
        """What the clients counted; everything was as it should be, and nothing of it is left."""
        clients = Clients(self.server.port, time.monotonic() + seconds)

        async def run():
            await asyncio.gather(*(clients.behave(seed * 1000 + i) for i in range(CLIENTS)))

        asyncio.run(run())
        self.assertEqual(clients.wrong[:3], [])
        # Every kind of client was there.
        self.assertEqual(len(clients.counts), 11, clients.counts)
        # One descriptor may be the connection that asks.
        until(lambda: not self.requests() and self.held()[1] <= self.descriptors + 1, "requests and descriptors go")
        return sum(clients.counts.values())

    def test_nothing_grows(self):
        _, self.descriptors, threads = self.held()
        self.run_clients(SECONDS / 3, 1)  # pools, arenas and caches fill
        before = self.held()
        count = self.run_clients(SECONDS * 2 / 3, 2)
        after = self.held()
        self.assertLess(after[0], before[0] * 1.1 + 8, (before, after, count))
        # Threads that handled requests end when they have had nothing to do for 10 s.
        until(lambda: self.held()[2] <= threads + 1, f"no more than {threads} threads are left")
        self.server.process.terminate()
        self.assertEqual(self.server.wait(), 0)
        print(f"{count} requests, before {before}, after {after}")


if __name__ == "__main__":
    unittest.main()
