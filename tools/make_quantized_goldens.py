#!/usr/bin/env python3
"""Makes the *_quantized folders of tests/golden/models: a tiny model as GGUF with K formats and as MLX 4-bit.

    tools/make_quantized_goldens.py [--out FOLDER] [NAME ...]

Logits are those of transformers on what the codes stand for. The dequantizer of GGUF is the gguf package's;
that of MLX is checked against mlx by check_mlx_layout.py. Needs what make_hybrid_goldens.py needs.
"""

import argparse
import json
import os
import warnings

import numpy as np
import torch
import transformers
from gguf import GGMLQuantizationType as Type
from gguf_layout import gguf_tensors, stays_float, write_gguf
from hf_layout import config_for
from hybrid_shapes import QUANTIZED, VOCAB_SIZE
from make_hybrid_goldens import NUM_TOKENS, config_dict, make_model, randomize
from mlx_layout import mlx_tensors, quantize_weights, write_mlx
from quantize import K_BLOCK, decode_gguf, encode_gguf

SPREAD = 0.06  # of weights: little enough that their rounding changes logits, not what they say


def kind_of(name, values):
    """As a Q4_K_M file deals formats out, with Q8_0 where publishers often have it."""
    if name.startswith("token_embd") or "ssm_alpha" in name or "ssm_beta" in name:
        return Type.Q8_0
    more = name.startswith("output") or "attn_v" in name or "ffn_down" in name
    if values.shape[-1] % K_BLOCK != 0:
        return Type.Q8_0 if more else Type.Q5_0
    return Type.Q6_K if more else Type.Q4_K


def logits_of(model, weights, tokens):
    model.load_state_dict({n: torch.from_numpy(np.ascontiguousarray(w, np.float32)) for n, w in weights.items()})
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


def dequantized_like(weights, family, config, tensors):
    """`weights` as the file's codes have them. Rows and columns moved on the way are found by moving their numbers."""
    numbered, start = {}, 0
    for name, values in weights.items():
        numbered[name] = np.arange(start, start + values.size, dtype=np.float32).reshape(values.shape)
        start += values.size
    if start >= 1 << 24:
        raise ValueError("too many weights to be numbered in F32")
    moved = gguf_tensors(numbered, family, config)
    flat = np.concatenate([values.reshape(-1) for values in weights.values()]).astype(np.float32)
    for name, values in tensors.items():
        if not stays_float(name, values):
            kind = kind_of(name, values)
            flat[moved[name].astype(np.int64)] = decode_gguf(encode_gguf(values, kind), kind)
    result, start = {}, 0
    for name, values in weights.items():
        result[name] = flat[start : start + values.size].reshape(values.shape)
        start += values.size
    if config["tie_word_embeddings"]:
        result["lm_head.weight"] = result["model.embed_tokens.weight"]
    return result


def make(name, folder):
    golden = QUANTIZED[name]
    os.makedirs(os.path.join(folder, "mlx"), exist_ok=True)
    model = make_model(golden.family, golden.config)
    randomize(model, golden.seed, golden.ssm_float32, SPREAD)
    weights = {n: p.detach().numpy().copy() for n, p in model.state_dict().items()}
    config = config_dict(model, golden)
    tokens = [int(t) for t in np.random.default_rng(100 + golden.seed).integers(0, VOCAB_SIZE, NUM_TOKENS)]
    exact = logits_of(model, weights, tokens)

    tensors = gguf_tensors(weights, golden.family, config)
    write_gguf(os.path.join(folder, "model.gguf"), golden.family, config | golden.published, tensors, kind_of, encode_gguf)
    of_gguf = logits_of(model, dequantized_like(weights, golden.family, config, tensors), tokens)
    np.save(os.path.join(folder, "ref_logits_gguf.npy"), of_gguf)

    tied = config["tie_word_embeddings"]
    write_mlx(os.path.join(folder, "mlx"), mlx_tensors(weights, golden.family, tied), golden.family,
              config_for(golden.family, config, golden.published, golden.nested))
    of_mlx = quantize_weights(weights, golden.family)
    if tied:
        of_mlx["lm_head.weight"] = of_mlx["model.embed_tokens.weight"]
    of_mlx = logits_of(model, of_mlx, tokens)
    np.save(os.path.join(folder, "ref_logits_mlx.npy"), of_mlx)
    with open(os.path.join(folder, "tokens.json"), "w", encoding="utf-8") as out:
        json.dump(tokens, out)
    moved = [float(np.abs(logits - exact).max()) for logits in (of_gguf, of_mlx)]
    print(name, "logits up to", float(np.abs(exact).max()), "moved by", moved, flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--out", default=os.path.join(here, "tests", "golden", "models"))
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"default: {', '.join(QUANTIZED)}")
    args = parser.parse_args()
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    warnings.simplefilter("ignore")
    for name in args.names or QUANTIZED:
        make(name, os.path.join(args.out, name))


if __name__ == "__main__":
    main()
