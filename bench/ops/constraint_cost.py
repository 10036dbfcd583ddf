#!/usr/bin/env python3
"""What a constraint costs: a server of one thread with and without one, taken in turns.

    bench/ops/constraint_cost.py INVAR MODEL.gguf [ROUNDS]

A: no constraint. B: parameters of tools (tests/constraint/oracle/tool_schemas.py), each a reply of up to
96 tokens at temperature 1. Prints decode tokens/s and the processor time of the server's process for each
token (which others on the machine disturb less), and B/A. The first round has empty caches.
"""

import json
import os
import statistics
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests/constraint/oracle"))
from tool_schemas import TOOLS  # noqa: E402

NAMES = ("todo_write", "edit", "create_issue", "extraction", "ui_tree", "kubectl_apply")


def post(address, body):
    request = urllib.request.Request(
        address + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=600) as answer:
        return json.load(answer)


def cpu_ms(process):
    fields = Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()
    return 1000 * (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def speed(server, address, constrained, seed):
    """(tokens a second after the first token, processor ms a token), over all tools."""
    tokens = ms = 0
    before = cpu_ms(server)
    for name in NAMES:
        body = {"prompt": f"A call of {name} as JSON:\n", "max_tokens": 96, "temperature": 1, "seed": seed}
        if constrained:
            body["response_format"] = {"type": "json_schema", "schema": TOOLS[name]}
        else:
            body["ignore_eos"] = True
        timings = post(address, body)["timings"]
        tokens += timings["predicted_n"]
        ms += timings["predicted_ms"]
    return 1000 * tokens / ms, (cpu_ms(server) - before) / tokens


def main():
    invar, model = sys.argv[1:3]
    rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 5
    server = subprocess.Popen(
        [invar, "serve", model, "--port", "0", "--context", "1024", "--threads", "1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "INVAR_PACKED_CACHE": "off"},
    )
    try:
        address = server.stdout.readline().decode().strip()
        while True:
            try:
                urllib.request.urlopen(address + "/health", timeout=60).close()
                break
            except urllib.error.HTTPError:
                threading.Event().wait(0.1)
        costs = []
        for number in range(rounds):
            free_speed, free_ms = speed(server, address, False, number)
            speed_b, ms_b = speed(server, address, True, number)
            costs.append(ms_b / free_ms)
            print(
                f"tokens/s {free_speed:6.1f} {speed_b:6.1f} B/A {speed_b / free_speed:.3f}   "
                f"processor ms a token {free_ms:6.2f} {ms_b:6.2f} B/A {costs[-1]:.3f}",
                flush=True,
            )
        print(f"{Path(model).name}: processor time a token, median B/A {statistics.median(costs):.3f}")
    finally:
        server.terminate()
        server.wait(30)


if __name__ == "__main__":
    main()
