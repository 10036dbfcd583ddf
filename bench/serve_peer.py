#!/usr/bin/env python3
"""Serving speed beside llama-server, both in turn (A B A B) on one file, as JSON lines and a table.

    bench/serve_peer.py MODEL.gguf [--invar build/release/invar] [--rounds 2] [--only chats,first,...]

chats: total output tokens/s of 1, 2, 4, 8, 16 chats at once. first: milliseconds to the first token
of a 512-token prompt beside four streams. gap: the longest hundredth of the gaps between tokens of
four streams, alone and while a prompt of 4,096 tokens is computed. turn: first token of the next turn
of a long conversation whose prefix is cached. idle: memory of 500 streams that wait (ours only).
Prompts are made of random words, so that no round finds another's in a cache. Build llama-server
first: bench/build_peer.sh.
"""

import argparse
import asyncio
import json
import os
import random
import re
import subprocess
import sys
import time
import urllib.request

DEFAULT_FOLDER = os.path.join(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "invar", "peer")
WORDS = "river stone bright window copper garden silent morning paper winter simple music".split()


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--invar", default="build/release/invar")
    parser.add_argument("--folder", default=DEFAULT_FOLDER, help="what build_peer.sh made")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--tokens", type=int, default=96, help="of each chat's reply")
    parser.add_argument("--turn", type=int, default=6000, help="tokens of the long conversation")
    parser.add_argument("--only", default="chats,first,gap,turn,idle")
    return parser.parse_args()


class Server:
    """One of the two, started with room for 16 sequences."""

    def __init__(self, name, args, sequences, context):
        self.name = name
        if name == "invar":
            command = [
                *(args.invar, "serve", args.model, "--port", "0", "--threads", str(args.threads)),
                *("--parallel", str(sequences), "--context", str(context), "--max-queue", "1024"),
            ]
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
            address = self.process.stdout.readline().decode().strip()
            self.port = int(address.rsplit(":", 1)[1])
        else:
            self.port = random.randint(20000, 50000)
            command = [
                os.path.join(args.folder, "build", "bin", "llama-server"),
                *("-m", args.model, "--port", str(self.port), "-t", str(args.threads)),
                *("-np", str(sequences), "-c", str(context * sequences)),
            ]
            self.process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for _ in range(600):
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=5):
                    return
            except OSError:
                if self.process.poll() is not None:
                    sys.exit(f"{' '.join(command)} ended with {self.process.returncode}")
                time.sleep(0.1)
        sys.exit(f"{name} did not become ready")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(30)

    def resident_bytes(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as status:
            return int(re.search(r"VmRSS:\s+(\d+) kB", status.read())[1]) * 1024


def words(count):
    return " ".join(random.choice(WORDS) for _ in range(count))


async def stream(server, body):
    """Times at which pieces of the reply came; a piece is a token but for characters cut in two."""
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    payload = json.dumps({**body, "stream": True, "temperature": 0}).encode()
    writer.write(
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        b"Content-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(payload)
    )
    writer.write(payload)
    times = []
    # Lines are looked at as bytes: the client shares the server's processors.
    while line := await reader.readline():
        if b'"content":"' in line and b'"content":""' not in line:
            times.append(time.perf_counter())
        elif line.startswith(b"data: [DONE]"):
            break
        elif line.startswith(b"HTTP/1.1 ") and b" 200 " not in line:
            raise RuntimeError((line + await reader.read(2000)).decode())
    writer.close()
    return times


def chat(text, tokens, **more):
    return {
        "messages": [{"role": "user", "content": text}],
        "max_tokens": tokens,
        "ignore_eos": True,
        **more,
    }


async def measure_chats(server, args):
    for count in (1, 2, 4, 8, 16):
        begin = time.perf_counter()
        bodies = [chat(words(20), args.tokens) for _ in range(count)]
        times = await asyncio.gather(*(stream(server, body) for body in bodies))
        first = max(t[0] for t in times)
        rate = sum(sum(1 for t in each if t > first) for each in times) / (max(t[-1] for t in times) - first)
        yield f"chats {count}", rate
        yield f"chats {count} with prompts", count * args.tokens / (max(t[-1] for t in times) - begin)


async def beside_streams(server, other, tokens=400):
    """Gaps of four streams before and while `other` runs, and other's result."""
    tasks = [asyncio.create_task(stream(server, chat(words(20), tokens))) for _ in range(4)]
    await asyncio.sleep(1.5)
    begin = time.perf_counter()
    result = await other
    end = time.perf_counter()
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return begin, end, result


def tokens_to_words(server, tokens):
    """How many of our words make so many tokens."""
    text = words(500)
    body = json.dumps({"content": text}).encode()
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/tokenize", body, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return int(tokens * 500 / len(json.load(answer)["tokens"]))


async def measure_first(server, args):
    del args
    count = tokens_to_words(server, 490)
    for _ in range(3):
        begin, _, times = await beside_streams(server, stream(server, chat(words(count), 1)), 2000)
        yield "first token of 512 beside 4, ms", (times[0] - begin) * 1000


async def measure_gap(server, args):
    del args
    count = tokens_to_words(server, 4000)
    tasks = [asyncio.create_task(stream(server, chat(words(20), 1500))) for _ in range(4)]
    await asyncio.sleep(6)
    begin = time.perf_counter()
    await stream(server, chat(words(count), 1))
    end = time.perf_counter()
    all_times = await asyncio.gather(*tasks)

    def slow_gap(low, high):
        gaps = sorted(b - a for times in all_times for a, b in zip(times, times[1:]) if low <= a and b <= high)
        return gaps[int(0.99 * len(gaps))] * 1000 if gaps else float("nan")

    start = max(times[0] for times in all_times)
    alone, beside = slow_gap(start, begin), slow_gap(begin, end)
    yield "gap p99 of 4 alone, ms", alone
    yield "gap p99 of 4 beside 4k prompt, ms", beside
    yield "gap ratio", beside / alone
    yield "4k prompt beside 4, s", end - begin


async def measure_turn(server, args):
    count = tokens_to_words(server, args.turn)
    messages = [{"role": "user", "content": words(count)}]
    body = {"messages": messages, "max_tokens": 8, "ignore_eos": True, "cache_prompt": True}
    await stream(server, body)
    for _ in range(3):
        messages += [
            {"role": "assistant", "content": words(20)},
            {"role": "user", "content": words(60)},
        ]
        begin = time.perf_counter()
        times = await stream(server, body)
        yield "first token of a warm turn, ms", (times[0] - begin) * 1000


async def measure_idle(server, args):
    del args
    # All 16 places have been used: what they take for keys and values is not the waiting's.
    await asyncio.gather(*(stream(server, chat(words(20), 16)) for _ in range(16)))
    before = server.resident_bytes()
    bodies = [chat(words(5), 4) for _ in range(500)]

    async def wait_for_end(body):
        return len(await stream(server, body))

    tasks = [asyncio.create_task(wait_for_end(body)) for body in bodies]
    await asyncio.sleep(3)
    yield "500 streams, MiB above the start", (server.resident_bytes() - before) / 2**20
    counts = await asyncio.gather(*tasks)
    yield "500 streams, dropped", sum(1 for count in counts if count == 0)


MEASURES = {
    "chats": (measure_chats, 16, 1024),
    "first": (measure_first, 5, 4096),
    "gap": (measure_gap, 5, 6144),
    "turn": (measure_turn, 2, 8192),
    "idle": (measure_idle, 16, 1024),
}


async def collect(measure, server, args):
    return [pair async for pair in measure(server, args)]


def main():
    args = parse_arguments()
    results = {}
    for key in args.only.split(","):
        measure, sequences, context = MEASURES[key]
        names = ["invar"] if key == "idle" else ["invar", "peer"] * args.rounds
        for name in names:
            with Server(name, args, sequences, context) as server:
                asyncio.run(collect(measure_warmup, server, args))
                for what, value in asyncio.run(collect(measure, server, args)):
                    results.setdefault(what, {}).setdefault(name, []).append(value)
                    print(json.dumps({"server": name, "what": what, "value": value}), flush=True)
    print(f"\n{'':42} {'invar':>10} {'llama-server':>12} {'ratio':>7}")
    for what, by_server in results.items():
        medians = {name: sorted(v)[len(v) // 2] for name, v in by_server.items()}
        line = f"{what:42} {medians['invar']:10.1f}"
        if "peer" in medians:
            line += f" {medians['peer']:12.1f} {medians['invar'] / medians['peer']:7.2f}"
        print(line)


async def measure_warmup(server, args):
    del args
    await stream(server, chat("hello", 16))
    yield "warm", 0


if __name__ == "__main__":
    main()
