#!/usr/bin/env python3
"""Makes the seed files of tests/fuzz/corpus/{gguf,safetensors}: a few hundred bytes each, one per part
of the formats (specs/weights.md sections 1 to 3). Run from the repository's root; needs nothing."""
import json
import os
import struct


def text(value):
    raw = value.encode()
    return struct.pack("<Q", len(raw)) + raw


def array(kind, fmt, values):
    body = b"".join(text(v) if kind == 8 else struct.pack("<" + fmt, v) for v in values)
    return struct.pack("<IQ", kind, len(values)) + body


def gguf(keys, tensors, version=3, alignment=32):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for key, kind, value in keys:
        head += text(key) + struct.pack("<I", kind) + value
    data = b""
    for name, dims, kind, raw in tensors:
        data += b"\0" * (-len(data) % alignment)
        head += text(name) + struct.pack("<I", len(dims))
        head += b"".join(struct.pack("<Q", d) for d in dims)
        head += struct.pack("<IQ", kind, len(data))
        data += raw
    return head + b"\0" * (-len(head) % alignment) + data


def safetensors(tensors, metadata=None):
    header = {} if metadata is None else {"__metadata__": metadata}
    data = b""
    for name, dtype, shape, raw in tensors:
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header, separators=(",", ":")).encode()
    return struct.pack("<Q", len(head)) + head + data


def write(folder, name, raw):
    path = os.path.join("tests/fuzz/corpus", folder)
    os.makedirs(path, exist_ok=True)
    with open(os.path.join(path, name), "wb") as out:
        out.write(raw)


def main():
    arch = ("general.architecture", 8, text("llama"))
    write("gguf", "empty", gguf([], []))
    write("gguf", "scalars", gguf(
        [arch, ("a", 0, b"\1"), ("b", 1, b"\xff"), ("c", 2, b"\1\0"), ("d", 3, b"\1\0"),
         ("e", 4, b"\1\0\0\0"), ("f", 5, b"\1\0\0\0"), ("g", 6, struct.pack("<f", 1e-5)), ("h", 7, b"\1"),
         ("i", 10, struct.pack("<Q", 7)), ("j", 11, struct.pack("<q", -7)), ("k", 12, struct.pack("<d", 0.5))],
        [], version=2))
    nested = struct.pack("<IQ", 9, 2) + array(4, "I", [1, 2]) + array(4, "I", [])
    write("gguf", "arrays", gguf([arch, ("a", 9, array(5, "i", [1, -2])), ("b", 9, array(8, "", ["x", ""])),
                                  ("c", 9, nested), ("d", 9, array(7, "?", [True, False]))], []))
    write("gguf", "vocabulary", gguf(
        [arch, ("tokenizer.ggml.model", 8, text("llama")), ("tokenizer.ggml.pre", 8, text("default")),
         ("tokenizer.ggml.tokens", 9, array(8, "", ["<s>", "a", "<0x0A>"])),
         ("tokenizer.ggml.scores", 9, array(6, "f", [0, -1, -2])),
         ("tokenizer.ggml.token_type", 9, array(5, "i", [3, 1, 6])),
         ("tokenizer.ggml.merges", 9, array(8, "", ["a b"])),
         ("tokenizer.ggml.bos_token_id", 4, b"\0\0\0\0"),
         ("tokenizer.chat_template", 8, text("{{ messages }}")),
         ("tokenizer.chat_template.rag", 8, text("{{ 1 }}")),
         ("general.sampling.temp", 6, struct.pack("<f", 0.5))], []))
    write("gguf", "tensors", gguf(
        [arch], [("output_norm.weight", [4], 0, bytes(16)), ("a.weight", [32, 2], 8, bytes(68)),
                 ("b.weight", [256, 1], 12, bytes(144)), ("c.weight", [2, 1, 1, 2], 30, bytes(8))]))
    write("gguf", "alignment", gguf([("general.alignment", 4, struct.pack("<I", 64))],
                                    [("a", [32], 2, bytes(18)), ("b", [256], 14, bytes(210))], alignment=64))
    write("gguf", "split", gguf([("split.no", 2, b"\0\0"), ("split.count", 2, b"\2\0"),
                                 ("split.tensors.count", 5, b"\1\0\0\0")], [("a", [1], 0, bytes(4))]))

    write("safetensors", "empty", safetensors([]))
    write("safetensors", "floats", safetensors(
        [("a.weight", "F32", [2, 2], bytes(16)), ("b.weight", "BF16", [3], bytes(6)), ("c", "F16", [], bytes(2)),
         ("position_ids", "I64", [1], bytes(8)), ("d", "F32", [0, 4], b"")], {"format": "pt"}))
    write("safetensors", "mlx", safetensors(
        [("l.weight", "U32", [2, 8], bytes(64)), ("l.scales", "BF16", [2, 1], bytes(4)),
         ("l.biases", "BF16", [2, 1], bytes(4)), ("l.bias", "BF16", [2], bytes(4))], {"format": "mlx"}))
    write("safetensors", "fp8", safetensors(
        [("l.weight", "F8_E4M3", [2, 2], bytes(4)), ("l.weight_scale_inv", "F32", [1, 1], bytes(4))]))
    write("safetensors", "escapes", safetensors([('q"\\\u00e9\n', "U8", [1], b"\0")]))
    write("safetensors", "index.json", json.dumps(
        {"metadata": {"total_size": 8}, "weight_map": {"a": "model-00001-of-00002.safetensors",
                                                       "b": "model-00002-of-00002.safetensors"}}).encode())


main()
