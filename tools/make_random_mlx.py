#!/usr/bin/env python3
"""Writes an MLX folder (affine 4-bit, group 64) with random weights at a published model's dimensions.

    tools/make_random_mlx.py SHAPE FOLDER [--seed N]

The sister of make_random_model.py, which has the shapes and writes GGUF: the format whose decoding is
cheapest on a GPU. llama, qwen2 and qwen3 shapes. The tokenizer knows the 256 bytes and an end token;
benchmarks give prompts as token ids. Needs numpy only.
"""

import argparse
import json
import os
import struct
import sys

import numpy as np
from make_random_shapes import SHAPES

CHUNK_WORDS = 8 << 20
GROUP = 64


def bf16(values):
    bits = np.asarray(values, np.float32).view(np.uint32)
    return ((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2")


def tensors_of(shape):
    """(name, rows or None for a vector, columns)."""
    q_size, kv_size = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield "model.embed_tokens", shape.vocab, shape.hidden
    if not shape.tied:
        yield "lm_head", shape.vocab, shape.hidden
    yield "model.norm.weight", None, shape.hidden
    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", None, shape.hidden
        yield at + "post_attention_layernorm.weight", None, shape.hidden
        for name, size in (("q", q_size), ("k", kv_size), ("v", kv_size)):
            yield at + f"self_attn.{name}_proj", size, shape.hidden
            if shape.family == "qwen2":
                yield at + f"self_attn.{name}_proj.bias", None, size
        if shape.family == "qwen3":
            yield at + "self_attn.q_norm.weight", None, shape.head_dim
            yield at + "self_attn.k_norm.weight", None, shape.head_dim
        yield at + "self_attn.o_proj", shape.hidden, q_size
        yield at + "mlp.gate_proj", shape.intermediate, shape.hidden
        yield at + "mlp.up_proj", shape.intermediate, shape.hidden
        yield at + "mlp.down_proj", shape.hidden, shape.intermediate


def header_of(tensors):
    header, at = {"__metadata__": {"format": "mlx"}}, 0

    def add(name, dtype, dims, num_bytes):
        nonlocal at
        header[name] = {"dtype": dtype, "shape": dims, "data_offsets": [at, at + num_bytes]}
        at += num_bytes

    for name, rows, columns in tensors:
        if rows is None:
            add(name, "BF16", [columns], 2 * columns)
            continue
        groups = columns // GROUP
        add(name + ".weight", "U32", [rows, columns // 8], rows * columns // 2)
        add(name + ".scales", "BF16", [rows, groups], 2 * rows * groups)
        add(name + ".biases", "BF16", [rows, groups], 2 * rows * groups)
    text = json.dumps(header).encode()
    return text + b" " * (-len(text) % 8)


def write_matrix(out, rng, rows, columns):
    left = rows * columns // 16  # codes of 4 bits in words of 64
    while left > 0:
        count = min(left, CHUNK_WORDS)
        rng.integers(0, 1 << 64, count, dtype=np.uint64).tofile(out)
        left -= count
    scale = columns**-0.5 / 4.61  # the standard deviation of 16 uniform codes is 4.61
    scales = scale * (0.75 + 0.5 * rng.random(rows * columns // GROUP, dtype=np.float32))
    bf16(scales).tofile(out)
    bf16(-7.5 * scales).tofile(out)


def config_of(shape):
    names = {"llama": "Llama", "qwen2": "Qwen2", "qwen3": "Qwen3"}
    return {
        "architectures": [names[shape.family] + "ForCausalLM"],
        "model_type": shape.family,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.context,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.theta,
        "tie_word_embeddings": shape.tied,
        "hidden_act": "silu",
        "eos_token_id": 256,
        "quantization": {"bits": 4, "group_size": GROUP},
    }


def tokenizer():
    """Byte-level BPE without merges."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = [b for b in range(256) if b not in printable]
    characters = [chr(b) for b in printable] + [chr(256 + i) for i in range(len(others))]
    end = {"id": 256, "content": "<|end|>", "single_word": False, "lstrip": False, "rstrip": False}
    return {
        "version": "1.0",
        "added_tokens": [end | {"normalized": False, "special": True}],
        "normalizer": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                          "use_regex": True},
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True,
                    "use_regex": True},
        "model": {"type": "BPE", "vocab": {c: i for i, c in enumerate(characters)}, "merges": []},
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=sorted(SHAPES), metavar="SHAPE")
    parser.add_argument("folder", metavar="FOLDER")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    shape = SHAPES[args.shape]
    if shape.family not in ("llama", "qwen2", "qwen3"):
        parser.error(f"{shape.family} is not written in this format")
    if shape.vocab == 0:
        shape.vocab = 512
    tensors = list(tensors_of(shape))
    rng = np.random.default_rng(args.seed)
    os.makedirs(args.folder, exist_ok=True)
    with open(os.path.join(args.folder, "model.safetensors"), "wb") as out:
        header = header_of(tensors)
        out.write(struct.pack("<Q", len(header)) + header)
        for name, rows, columns in tensors:
            out.flush()
            if rows is not None:
                write_matrix(out, rng, rows, columns)
                continue
            values = rng.standard_normal(columns, dtype=np.float32)
            bf16(0.02 * values if name.endswith(".bias") else 1 + 0.1 * values).tofile(out)
    for name, content in (("config.json", config_of(shape)), ("tokenizer.json", tokenizer())):
        with open(os.path.join(args.folder, name), "w") as out:
            json.dump(content, out)
    return 0


if __name__ == "__main__":
    sys.exit(main())
