#!/usr/bin/env python3
"""Makes tests/golden/weights/real_rows.tsv: what gguf-py reads in the three real models.

Run: make_weight_rows.py MODELS_FOLDER > tests/golden/weights/real_rows.tsv   (needs numpy and gguf)
Lines: "tensors FILE COUNT FORMAT=COUNT,..." and, for one tensor of each format of each file,
"row FILE TENSOR SHAPE(Hugging Face order) FORMAT ROW SUM ABSSUM FIRST..." with sums in double.
"""
import collections
import os
import sys

import numpy
from gguf import GGUFReader
from gguf.quants import dequantize

FILES = [
    "smollm2-135m-instruct-q4_1.gguf",
    "gemma-3-270m-q4_k_m.gguf",
    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
]


def main():
    for name in FILES:
        reader = GGUFReader(os.path.join(sys.argv[1], name))
        counts = collections.Counter(t.tensor_type.name for t in reader.tensors)
        listed = ",".join(f"{k}={v}" for k, v in sorted(counts.items()))
        print("tensors", name, len(reader.tensors), listed, sep="\t")
        seen = set()
        for tensor in reader.tensors:
            kind = tensor.tensor_type.name
            if kind in seen or len(tensor.shape) < 2 and kind == "F32" and "norm" not in tensor.name:
                continue
            seen.add(kind)
            shape = [int(d) for d in tensor.shape][::-1]
            data = tensor.data.reshape(-1, tensor.data.shape[-1])
            row = data.shape[0] * 2 // 3
            values = dequantize(data[row : row + 1], tensor.tensor_type).reshape(-1)
            wide = values.astype(numpy.float64)
            first = ",".join(repr(float(v)) for v in values[:5])
            print("row", name, tensor.name, ",".join(map(str, shape)), kind, row,
                  repr(float(wide.sum())), repr(float(numpy.abs(wide).sum())), first, sep="\t")


main()
