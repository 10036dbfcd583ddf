#!/usr/bin/env python3
"""How far llama.cpp's logits are from the reference backend's on the same file and tokens.

usage: numerics_peer.py INVAR MODEL.gguf TEXT_FILE REFERENCE_LOGITS [--tokens N] [--window N]

REFERENCE_LOGITS is what `invar eval MODEL --text TEXT_FILE --backend reference --save-logits` wrote with
the same --tokens and --window. Prints one JSON line: perplexity, mean and 99 % KL divergence from the
reference, top-1 agreement. Needs numpy and llama-cpp-python (default settings, two threads).
"""
import argparse
import json
import subprocess
import sys

import llama_cpp
import numpy as np

parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
parser.add_argument("invar")
parser.add_argument("model")
parser.add_argument("text")
parser.add_argument("reference")
parser.add_argument("--tokens", type=int, default=0)
parser.add_argument("--window", type=int, default=512)
arguments = parser.parse_args()


def tokenize(*flags):
    command = [arguments.invar, "tokenize", arguments.model, "--ids", *flags]
    return [int(i) for i in subprocess.run(command, check=True, capture_output=True, text=True, input="").stdout.split()]


ids = tokenize("--file", arguments.text)
begin = tokenize("--bos", "")
ids = ids[: arguments.tokens] if arguments.tokens else ids
windows = [begin + ids[i : i + arguments.window] for i in range(0, len(ids), arguments.window)]
windows = [w for w in windows if len(w) > 1]

with open(arguments.reference, "rb") as file:
    if file.readline() != b"invar-logits-1\n":
        sys.exit(f"numerics_peer: {arguments.reference} is no logits file of invar eval")
    header = json.loads(file.readline())
    offset = file.tell()
vocab_size, num_rows = header["vocab_size"], header["num_rows"]
if num_rows != sum(len(w) - 1 for w in windows):
    sys.exit(f"numerics_peer: {arguments.reference} has {num_rows} rows: made with other --tokens or --window")
exact = np.memmap(arguments.reference, np.float32, "r", offset, (num_rows, vocab_size))


def log_softmax(z):
    z = z.astype(np.float64)
    z -= z.max(-1, keepdims=True)
    return z - np.log(np.exp(z).sum(-1, keepdims=True))


peer = llama_cpp.Llama(arguments.model, n_ctx=arguments.window + 8, n_batch=arguments.window + 8, logits_all=True,
                       n_threads=2, n_threads_batch=2, verbose=False)
divergence, same, loss, row = [], 0, 0.0, 0
for window in windows:
    peer.reset()
    peer.eval(window[:-1])
    scores = np.asarray(peer.scores[: len(window) - 1], np.float32)
    for first in range(0, len(scores), 16):
        block = scores[first : first + 16]
        reference = np.asarray(exact[row : row + len(block)])
        ours, theirs = log_softmax(reference), log_softmax(block)
        divergence.extend((np.exp(ours) * (ours - theirs)).sum(-1))
        same += int((reference.argmax(-1) == block.argmax(-1)).sum())
        loss -= theirs[np.arange(len(block)), window[first + 1 : first + 1 + len(block)]].sum()
        row += len(block)
print(json.dumps({
    "model": arguments.model, "positions": row, "perplexity": float(np.exp(loss / row)), "mean_kl": float(np.mean(divergence)),
    "p99_kl": float(np.quantile(divergence, 0.99)), "top1_agreement": same / row, "llama_cpp_python": llama_cpp.__version__,
}))
