#!/usr/bin/env python3
"""Writes a random-weight checkpoint at a published model's dimensions, to measure speed and memory on.

    tools/make_random_checkpoint.py --preset qwen3.6-35b-a3b --layers 12 OUT.gguf
    tools/make_random_checkpoint.py --preset nemotron-3-nano-30b-a3b --format mlx FOLDER

OUT.gguf is Q4_K with Q6_K embedding and head (--format q4_k), Q4_0 or Q8_0; rows that are no multiple of
256 take Q5_0 and Q8_0 in place of Q4_K and Q6_K, as llama.cpp's quantizer does. --format mlx is affine
4-bit in groups of 64, routers in 8-bit. Weights go to disk as they are drawn, 32 MiB at a time. They give
activations of about unit size in every layer, so that logits are finite; replies are noise. The tokenizer is
random_tokenizer.py's: of the published size, with the published special tokens, but made-up words.

--layers N keeps the first N layers, so their pattern. What a step takes is then scaled by
    time(all) = fixed + sum over kinds of (layers of that kind) x (time of one)
where `fixed` (embedding, head, sampling) and the times come from two cuts of different length, or from
`invar bench --kernels`. Qwen's pattern repeats every 4 layers: with N a multiple of 4 the sum is
N' / N x (time(N) - fixed), with N' the whole number of layers. Nemotron's does not repeat: count its kinds.
"""

import argparse
import json
import os
import struct
import sys

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from gguf_layout import VISIBLE_ONE, add_metadata, architecture_of, gguf_tensors, stays_float
from hf_layout import bf16_bits, config_for
from mlx_layout import GROUP, bits_of, mlx_tensors
from model_parameters import parameters
from random_presets import PRESETS, config_of
from random_tokenizer import Tokenizer

CHUNK_BYTES = 32 << 20


def vector(rng, family, name, shape):
    """What is no matrix, in Hugging Face's convention."""
    values = rng.standard_normal(shape, dtype=np.float32)
    if name.endswith("A_log"):
        return np.log(1 + 15 * rng.random(shape, dtype=np.float32))
    if name.endswith("dt_bias"):  # softplus(dt_bias) between 0.001 and 0.1, evenly in the logarithm
        step = np.exp(np.log(1e-3) + np.log(100) * rng.random(shape, dtype=np.float32))
        return step + np.log(-np.expm1(-step))
    if name.endswith("conv1d.weight"):
        return values / np.sqrt(shape[-1])
    if name.endswith((".bias", "e_score_correction_bias")):
        return 0.02 * values
    plain = family in VISIBLE_ONE or name.endswith(("linear_attn.norm.weight", ".D"))
    return 0.1 * values + (1 if plain else 0)


def is_matrix(name, shape):
    return len(shape) >= 2 and "conv1d" not in name


def split_matrix(name, shape, rename):
    """How a layout names and cuts a matrix: (name, shape) of the parts. A thin matrix shows it."""
    along_columns = name.endswith("linear_attn.out_proj.weight")
    thin = (1,) * (len(shape) - 2) + ((1, shape[-1]) if along_columns else (shape[-2], 1))
    for part, values in rename({name: np.zeros(thin, np.float32)}).items():
        yield part, (*shape[:-2], shape[-2] if along_columns else values.shape[-2], shape[-1])


def random_blocks(rng, kind, num_blocks, sigma):
    """Blocks of `kind` whose values have mean near 0 and standard deviation near `sigma`."""
    size = gguf.GGML_QUANT_SIZES[kind][1]
    words = rng.integers(0, 1 << 64, -(-num_blocks * size // 8), dtype=np.uint64)
    blocks = words.view(np.uint8)[: num_blocks * size].reshape(num_blocks, size)

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


def kind_of(name, columns, wanted):
    is_table = name in ("token_embd.weight", "output.weight")
    if wanted == "q8_0":
        return Type.Q8_0
    if wanted == "q4_0":
        return Type.Q8_0 if is_table else Type.Q4_0
    if columns % 256 != 0:
        return Type.Q8_0 if is_table else Type.Q5_0
    return Type.Q6_K if is_table else Type.Q4_K


def chunks(total, size):
    while total > 0:
        yield min(total, size)
        total -= min(total, size)


def write_gguf(path, rng, family, config, tokenizer, wanted, mtp):
    writer = gguf.GGUFWriter(path, architecture_of(family, config))
    writer.add_name(f"random {os.path.basename(path)}")
    add_metadata(writer, family, config, mtp)
    tokenizer.add_to_gguf(writer)
    types = {"q4_k": gguf.LlamaFileType.MOSTLY_Q4_K_M, "q4_0": gguf.LlamaFileType.MOSTLY_Q4_0}
    writer.add_file_type(types.get(wanted, gguf.LlamaFileType.MOSTLY_Q8_0))
    writer.add_quantization_version(2)

    def renamed(tensors):
        return gguf_tensors(tensors, family, config)

    plan = []  # (values, or a format and the shape)
    for name, shape in parameters(family, config, mtp):
        if not is_matrix(name, shape):
            for part, values in renamed({name: vector(rng, family, name, shape)}).items():
                writer.add_tensor_info(part, values.shape, np.dtype(np.float32), values.nbytes)
                plan.append((values, None, None))
            continue
        for part, full in split_matrix(name, shape, renamed):
            if stays_float(part, np.empty((0,) * len(full))):  # routers
                values = rng.standard_normal(full, dtype=np.float32) / np.sqrt(full[-1], dtype=np.float32)
                writer.add_tensor_info(part, full, np.dtype(np.float32), values.nbytes)
                plan.append((values, None, None))
                continue
            kind = kind_of(part, full[-1], wanted)
            per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            row_bytes = full[-1] // per_block * block_bytes
            # The shape in bytes: the writer derives the elements from the format.
            writer.add_tensor_info(part, (*full[:-1], row_bytes), np.dtype(np.uint8), int(np.prod(full[:-1])) * row_bytes, kind)
            plan.append((None, kind, full))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    out = writer.fout[0]
    writer.write_padding(out, out.tell())
    for values, kind, full in plan:
        if kind is None:
            out.write(np.ascontiguousarray(values, "<f4").tobytes())
        else:
            per_block, block_bytes = gguf.GGML_QUANT_SIZES[kind]
            for count in chunks(int(np.prod(full)) // per_block, CHUNK_BYTES // block_bytes):
                out.write(random_blocks(rng, kind, count, full[-1] ** -0.5).data)
        writer.write_padding(out, out.tell())
    writer.close()


def mlx_parts(bits, shape):
    """(suffix, dtype, shape) of what a quantized matrix is stored as."""
    groups = (*shape[:-1], shape[-1] // GROUP)
    return [(".weight", "U32", (*shape[:-1], shape[-1] * bits // 32)), (".scales", "BF16", groups), (".biases", "BF16", groups)]


def write_words(out, rng, num_bytes):
    for count in chunks(num_bytes // 4, CHUNK_BYTES // 4):
        out.write(rng.integers(0, 1 << 64, -(-count // 2), dtype=np.uint64).view(np.uint32)[:count].data)


def write_mlx(folder, rng, family, config, tokenizer, mtp):
    """One shard; safetensors has no limit of its size."""
    os.makedirs(folder, exist_ok=True)
    quantization = {"group_size": GROUP, "bits": 4, "mode": "affine"}
    header, plan, at = {"__metadata__": {"format": "mlx"}}, [], 0

    def add(name, dtype, shape, job):
        nonlocal at
        num_bytes = int(np.prod(shape)) * {"U32": 4, "BF16": 2, "F32": 4}[dtype]
        header[name] = {"dtype": dtype, "shape": list(shape), "data_offsets": [at, at + num_bytes]}
        plan.append((job, num_bytes))
        at += num_bytes

    def renamed(tensors):
        # mlx-lm drops MTP tensors; here they keep the publisher's place, with experts stacked as in the trunk.
        parts = mlx_tensors({"model." + n if n.startswith("mtp.") else n: v for n, v in tensors.items()}, family,
                            config["tie_word_embeddings"])
        return {n[n.index("mtp.") :] if "mtp." in n else n: v for n, v in parts.items()}

    for name, shape in parameters(family, config, mtp):
        if not is_matrix(name, shape):
            for part, values in renamed({name: vector(rng, family, name, shape)}).items():
                wide = part.endswith(("A_log", "e_score_correction_bias"))
                add(part, "F32" if wide else "BF16", values.shape, values.astype("<f4") if wide else bf16_bits(values))
            continue
        for part, full in split_matrix(name, shape, renamed):
            bits = bits_of(part, np.empty((*full[:-2], 0, full[-1])), family)
            if bits is None:
                values = rng.standard_normal(full, dtype=np.float32) / np.sqrt(full[-1], dtype=np.float32)
                add(part, "BF16", full, bf16_bits(values))
                continue
            module = part.removesuffix(".weight")
            if bits == 8:
                quantization[module] = {"group_size": GROUP, "bits": 8}
            levels = 2**bits
            step = full[-1] ** -0.5 / np.sqrt((levels**2 - 1) / 12)
            for suffix, dtype, dims in mlx_parts(bits, full):
                job = {".weight": None, ".scales": step, ".biases": -(levels - 1) / 2 * step}[suffix]
                add(module + suffix, dtype, dims, job)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for job, num_bytes in plan:
            if job is None:
                write_words(out, rng, num_bytes)
            elif isinstance(job, np.ndarray):
                out.write(np.ascontiguousarray(job).tobytes())
            else:  # one scale for all groups, as random codes have the same spread everywhere
                one = bf16_bits(np.float32([job])).tobytes()
                for count in chunks(num_bytes, CHUNK_BYTES):
                    out.write(one * (count // 2))
    write_json(folder, "config.json", mlx_config(family, config, tokenizer, mtp) | {"quantization": quantization,
                                                                                "quantization_config": quantization})
    write_json(folder, "tokenizer.json", tokenizer.tokenizer_json())
    write_json(folder, "tokenizer_config.json", tokenizer.tokenizer_config())
    write_json(folder, "generation_config.json", {"eos_token_id": tokenizer.end_ids(), "do_sample": False})


def mlx_config(family, config, tokenizer, mtp):
    more = {"eos_token_id": tokenizer.end_ids()[0]}
    if mtp:
        more |= {"num_nextn_predict_layers": 1, "mtp_hybrid_override_pattern": "*E"} if family == "nemotron_h" else {
            "mtp_num_hidden_layers": 1}
    if family == "nemotron_h":
        more["hybrid_override_pattern"] = config["hybrid_override_pattern"]
    kind = "gemma3_text" if family == "gemma3" else family
    return config_for(family, {"model_type": kind, **config}, more, family.startswith("qwen3_5"))


def write_json(folder, name, content):
    with open(os.path.join(folder, name), "w", encoding="utf-8") as out:
        json.dump(content, out)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", metavar="OUT", help="a GGUF file, or a folder with --format mlx")
    parser.add_argument("--preset", required=True, choices=sorted(PRESETS), metavar="NAME", help=", ".join(sorted(PRESETS)))
    parser.add_argument("--format", choices=["q4_k", "q4_0", "q8_0", "mlx"], default="q4_k", help="default: q4_k")
    parser.add_argument("--layers", type=int, default=0, metavar="N", help="only the first N layers")
    parser.add_argument("--mtp", action="store_true", help="with the draft head of the hybrid families")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    try:
        family, vocabulary, config = config_of(args.preset, args.layers)
    except ValueError as error:
        parser.error(f"--layers: {error}")
    if args.layers < 0:
        parser.error("--layers: must be at least 1")
    if args.mtp and family not in ("qwen3_5", "qwen3_5_moe", "qwen3_next", "nemotron_h"):
        parser.error(f"--mtp: {family} has no draft head")
    rng = np.random.Generator(np.random.SFC64(args.seed))
    tokenizer = Tokenizer(vocabulary, config["vocab_size"])
    if args.format == "mlx":
        write_mlx(args.out, rng, family, config, tokenizer, args.mtp)
    else:
        write_gguf(args.out, rng, family, config, tokenizer, args.format, args.mtp)
    kinds = config.get("layers_block_type") or config.get("layer_types") or ["full_attention"] * config["num_hidden_layers"]
    print(json.dumps({"layers": {kind: kinds.count(kind) for kind in sorted(set(kinds))}, "bytes": size_of(args.out)}))
    return 0


def size_of(path):
    return os.path.getsize(os.path.join(path, "model.safetensors") if os.path.isdir(path) else path)


if __name__ == "__main__":
    sys.exit(main())
