#!/usr/bin/env python3
"""Speed of llama.cpp in the form that `invar bench --against` reads: one JSON object a line.

    bench/peer.py MODEL.gguf [--threads 2] [--prefill 512] [--decode 64] [--depth 0] [--batch 1,2,4,8]

Takes the flags of `invar bench` and runs what bench/build_peer.sh built: llama-bench for prompts and
single sequences, llama-batched-bench for several (total tokens/s of the generation). Both warm up by
themselves; each figure is one measurement, since the comparison runs this script once a round.
"""

import argparse
import json
import os
import subprocess
import sys

DEFAULT_FOLDER = os.path.join(
    os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")), "invar", "peer"
)


def numbers(text):
    return [int(part) for part in text.split(",")]


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    parser.add_argument("--prefill", type=int, default=512)
    parser.add_argument("--decode", type=int, default=64)
    parser.add_argument("--depth", type=numbers, default=[0])
    parser.add_argument("--batch", type=numbers, default=[1, 2, 4, 8])
    parser.add_argument("--folder", default=DEFAULT_FOLDER, help="what build_peer.sh made")
    return parser.parse_args()


def output_of(command):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit code {result.returncode}\n{result.stderr.decode()}")
    return result.stdout.decode()


def parse_llama_bench(text):
    """Of `llama-bench -o json`: an array with a test each."""
    for test in json.loads(text):
        work = "prefill" if test["n_prompt"] > 0 else "decode"
        yield {
            "work": work,
            "tokens": test["n_prompt"] or test["n_gen"],
            "depth": test["n_depth"],
            "sequences": 1,
            "tokens_per_second": test["avg_ts"],
        }


def parse_batched_bench(text, depth):
    """Of `llama-batched-bench --output-format jsonl`: a line for each number of sequences."""
    for line in text.splitlines():
        if not line.startswith("{"):
            continue
        test = json.loads(line)
        yield {
            "work": "decode",
            "tokens": test["tg"],
            "depth": depth,
            "sequences": test["pl"],
            "tokens_per_second": test["speed_tg"],
        }


def run_llama_bench(args, prefill, decode, depth):
    command = [
        os.path.join(args.folder, "build", "bin", "llama-bench"),
        *("-m", args.model, "-t", str(args.threads), "-r", "1", "-o", "json"),
        *("-p", str(prefill), "-n", str(decode), "-d", str(depth)),
    ]
    return parse_llama_bench(output_of(command))


def run_batched_bench(args, batches, depth):
    prompt = max(depth, 1)
    positions = (prompt + args.decode) * max(batches)
    command = [
        os.path.join(args.folder, "build", "bin", "llama-batched-bench"),
        *("-m", args.model, "-t", str(args.threads), "-c", str(positions)),
        *("-npp", str(prompt), "-ntg", str(args.decode)),
        *("-npl", ",".join(map(str, batches)), "--output-format", "jsonl"),
    ]
    return parse_batched_bench(output_of(command), depth)


def main():
    args = parse_arguments()
    results = []
    if args.prefill > 0:
        results += run_llama_bench(args, args.prefill, 0, 0)
    for depth in args.depth if args.decode > 0 else []:
        if 1 in args.batch:
            results += run_llama_bench(args, 0, args.decode, depth)
        several = [batch for batch in args.batch if batch > 1]
        if several:
            results += run_batched_bench(args, several, depth)
    for result in results:
        print(json.dumps(result))


if __name__ == "__main__":
    main()
