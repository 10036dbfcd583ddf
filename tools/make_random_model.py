#!/usr/bin/env python3
"""Writes a GGUF with random weights at a published model's dimensions, to measure speed on.

    tools/make_random_model.py SHAPE OUT.gguf --tokenizer FILE.gguf [--format q4_k_m|q4_0|q8_0]

SHAPE is a name of SHAPES ("qwen2.5-7b"), or "tiny-FAMILY" for tests. Only sizes, formats and the
family's switches are the published model's: replies are noise, but finite. The vocabulary is FILE's,
padded with unused tokens to the shape's size, so that any engine can load the result. Weights go to
disk as they are made; memory stays below 200 MB whatever the size.
"""

import argparse
import dataclasses
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from make_random_shapes import SHAPES

CHUNK_BYTES = 32 << 20


def random_blocks(rng, kind, num_blocks, sigma):
    """Blocks of `kind` whose values have mean near 0 and standard deviation near `sigma`."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    blocks = rng.integers(0, 256, (num_blocks, size), dtype=np.uint8)

    def put_half(offset, value):
        blocks[:, offset : offset + 2] = np.array([value], np.float16).view(np.uint8)

    # The divisors are the standard deviations of uniform codes: sqrt((n^2 - 1) / 12) for n codes.
    if kind == Type.Q4_0:
        put_half(0, sigma / 4.61)
    elif kind == Type.Q5_0:
        put_half(0, sigma / 9.23)
    elif kind == Type.Q8_0:
        put_half(0, sigma / 73.6)
        codes = blocks[:, 2:]
        codes[codes == 128] = 129  # -128 is no code of this format
    elif kind == Type.Q4_K:  # all sub-scales and sub-minima 8, in six bits each
        put_half(0, sigma / (8 * 4.61))
        put_half(2, 7.5 * sigma / (8 * 4.61))
        blocks[:, 4:12] = 8
        blocks[:, 12:16] = 0x88
    elif kind == Type.Q6_K:
        blocks[:, 192:208] = 8
        put_half(208, sigma / (8 * 18.5))
    else:
        raise ValueError(kind)
    return blocks


def gets_more_bits(layer, layers):
    """The eighths of the layers at both ends and every third between them."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


def format_of(name, layer, shape, columns, wanted):
    """The format of a matrix as llama.cpp's quantizer deals them out."""
    if wanted == "q8_0":
        return Type.Q8_0
    is_head = name == "output" or (name == "token_embd" and shape.tied)
    if wanted == "q4_0":
        kind = Type.Q6_K if is_head else Type.Q4_0
    else:
        more = name in ("attn_v", "ffn_down") and gets_more_bits(layer, shape.layers)
        kind = Type.Q6_K if is_head or more else Type.Q4_K
    if columns % 256 != 0:  # K formats have blocks of 256
        kind = {Type.Q4_K: Type.Q5_0, Type.Q6_K: Type.Q8_0}.get(kind, kind)
    return kind


def tensors_of(shape, wanted):
    """(name, rows or None for a vector, columns, format) in file order."""

    def matrix(name, rows, columns, layer=-1):
        full = f"{name}.weight" if layer < 0 else f"blk.{layer}.{name}.weight"
        return full, rows, columns, format_of(name, layer, shape, columns, wanted)

    q_size, kv_size = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    yield matrix("token_embd", shape.vocab, shape.hidden)
    if not shape.tied:
        yield matrix("output", shape.vocab, shape.hidden)
    yield "output_norm.weight", None, shape.hidden, Type.F32
    for layer in range(shape.layers):
        vectors = {"attn_norm.weight": shape.hidden, "ffn_norm.weight": shape.hidden}
        if shape.family == "qwen2":
            vectors |= {"attn_q.bias": q_size, "attn_k.bias": kv_size, "attn_v.bias": kv_size}
        if shape.family in ("qwen3", "gemma3"):
            vectors |= {"attn_q_norm.weight": shape.head_dim, "attn_k_norm.weight": shape.head_dim}
        if shape.family == "gemma3":
            vectors |= {"post_attention_norm.weight": shape.hidden}
            vectors |= {"post_ffw_norm.weight": shape.hidden}
        for name, size in vectors.items():
            yield f"blk.{layer}.{name}", None, size, Type.F32
        yield matrix("attn_q", q_size, shape.hidden, layer)
        yield matrix("attn_k", kv_size, shape.hidden, layer)
        yield matrix("attn_v", kv_size, shape.hidden, layer)
        yield matrix("attn_output", shape.hidden, q_size, layer)
        yield matrix("ffn_gate", shape.intermediate, shape.hidden, layer)
        yield matrix("ffn_up", shape.intermediate, shape.hidden, layer)
        yield matrix("ffn_down", shape.hidden, shape.intermediate, layer)


def add_metadata(writer, name, shape, wanted):
    writer.add_name(f"random {name}")
    writer.add_block_count(shape.layers)
    writer.add_context_length(shape.context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.theta)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_vocab_size(shape.vocab)
    if shape.window:
        writer.add_sliding_window(shape.window)
    file_types = {"q4_k_m": gguf.LlamaFileType.MOSTLY_Q4_K_M, "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}
    writer.add_file_type(file_types.get(wanted, gguf.LlamaFileType.MOSTLY_Q8_0))
    writer.add_quantization_version(2)


def add_tokenizer(writer, fields, vocab_size):
    """FILE's tokenizer; `vocab_size` - len(tokens) unused tokens behind."""
    padding = {
        "tokenizer.ggml.tokens": lambda i: f"[PAD{i}]",
        "tokenizer.ggml.token_type": lambda i: int(gguf.TokenType.UNUSED),
        "tokenizer.ggml.scores": lambda i: -1000.0,
    }
    for key, field in fields.items():
        if not key.startswith("tokenizer."):
            continue
        value = field.contents()
        if field.types[0] != gguf.GGUFValueType.ARRAY:
            writer.add_key_value(key, value, field.types[0])
            continue
        pad = padding.get(key)
        if pad is not None:
            value = list(value) + [pad(i) for i in range(len(value), vocab_size)]
        writer.add_array(key, value)


def write_matrix(out, rng, rows, columns, kind):
    per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
    left = rows * columns // per_block
    sigma = columns**-0.5
    while left > 0:
        count = min(left, CHUNK_BYTES // block_bytes)
        random_blocks(rng, kind, count, sigma).tofile(out)
        left -= count


def vector(rng, name, size):
    values = rng.standard_normal(size, dtype=np.float32)
    return 0.02 * values if name.endswith(".bias") else 1 + 0.1 * values


def make(name, out_path, tokenizer_path, wanted, seed):
    shape = SHAPES[name]
    fields = gguf.GGUFReader(tokenizer_path).fields
    num_tokens = len(fields["tokenizer.ggml.tokens"].data)
    shape = dataclasses.replace(shape, vocab=max(shape.vocab, num_tokens))
    writer = gguf.GGUFWriter(out_path, shape.family)
    add_metadata(writer, name, shape, wanted)
    add_tokenizer(writer, fields, shape.vocab)
    tensors = list(tensors_of(shape, wanted))
    for tensor, rows, columns, kind in tensors:
        if rows is None:
            writer.add_tensor_info(tensor, [columns], np.dtype(np.float32), columns * 4)
            continue
        per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
        row_bytes = columns // per_block * block_bytes
        # The shape in bytes: the writer derives the elements from the format.
        writer.add_tensor_info(tensor, [rows, row_bytes], np.dtype(np.uint8), rows * row_bytes, kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()

    rng = np.random.default_rng(seed)
    out = writer.fout[0]
    writer.write_padding(out, out.tell())
    for tensor, rows, columns, kind in tensors:
        if rows is None:
            out.write(vector(rng, tensor, columns).astype("<f4").tobytes())
        else:
            out.flush()
            write_matrix(out, rng, rows, columns, kind)
            out.seek(0, 2)
        writer.write_padding(out, out.tell())
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("shape", choices=sorted(SHAPES), metavar="SHAPE")
    parser.add_argument("out", metavar="OUT.gguf")
    parser.add_argument("--tokenizer", required=True, help="GGUF whose vocabulary is taken")
    parser.add_argument("--format", choices=["q4_k_m", "q4_0", "q8_0"], default="q4_k_m")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    make(args.shape, args.out, args.tokenizer, args.format, args.seed)
    return 0


if __name__ == "__main__":
    sys.exit(main())
