#!/usr/bin/env python3
"""Compares our MLX layout with mlx-lm's: the *_quantized folders of tests/golden/models, once more by mlx-lm.

    tools/check_mlx_layout.py [NAME ...]

The same float weights go through mlx-lm's own sanitize() and quantize(); every tensor must come out with the
same name, shape and content, codes and scales bit for bit but for a few roundings. Then mlx-lm's logits of our
folder are held against ref_logits_mlx.npy. Needs mlx, mlx-lm, torch and transformers.
"""

import json
import sys
from pathlib import Path

import mlx.core as mx
import mlx.nn as nn
import numpy as np
from hf_layout import file_tensors
from hybrid_shapes import QUANTIZED
from make_hybrid_goldens import make_model, randomize
from make_quantized_goldens import SPREAD
from mlx.utils import tree_flatten
from mlx_lm.utils import _get_classes

MODELS = Path(__file__).resolve().parent.parent / "tests" / "golden" / "models"


def model_of(config):
    model_class, args_class = _get_classes(config)
    return model_class(args_class.from_dict(config))


def converted(golden, config):
    """mlx-lm's conversion of the golden's float weights."""
    model = make_model(golden.family, golden.config)
    randomize(model, golden.seed, golden.ssm_float32, SPREAD)
    weights = {n: p.detach().numpy() for n, p in model.state_dict().items()}
    fused = golden.family == "qwen3_5_moe"  # all that mlx-lm's qwen3_5_moe reads
    tensors = file_tensors(weights, golden.family, golden.nested, fused, config["tie_word_embeddings"])
    result = model_of(config)
    kept = {n: mx.array(t) for n, t in tensors.items()}
    kept = {n: t if n.endswith(("A_log", "e_score_correction_bias")) else t.astype(mx.bfloat16) for n, t in kept.items()}
    result.load_weights(list(result.sanitize(kept).items()))
    predicate = getattr(result, "quant_predicate", None)

    def wanted(path, module):
        if not hasattr(module, "to_quantized") or module.weight.shape[-1] % 64 != 0:
            return False
        return predicate(path, module) if predicate else True

    nn.quantize(result, 64, 4, class_predicate=wanted)
    return dict(tree_flatten(result.parameters()))


def compare(name):
    golden, folder = QUANTIZED[name], MODELS / name
    with open(folder / "mlx" / "config.json", encoding="utf-8") as file:
        config = json.load(file)
    if "time_step_limit" in config:
        config["time_step_limit"] = [0.0, float("inf")]
    plain = {k: v for k, v in config.items() if not k.startswith("quantization")}
    theirs, ours = converted(golden, plain), mx.load(str(folder / "mlx" / "model.safetensors"))
    wrong = [f"{n}: only {'theirs' if n in theirs else 'ours'}" for n in sorted(theirs.keys() ^ ours.keys())]
    for n in sorted(theirs.keys() & ours.keys()):
        a, b = theirs[n], ours[n]
        if a.shape != b.shape or (a.dtype == mx.uint32) != (b.dtype == mx.uint32):
            wrong.append(f"{n}: ours {b.dtype} {b.shape}, theirs {a.dtype} {a.shape}")
        elif a.dtype == mx.uint32:
            apart = int((a != b).sum())
            if apart > a.size // 100:
                wrong.append(f"{n}: {apart} of {a.size} words differ")
        elif float(mx.abs(a.astype(mx.float32) - b.astype(mx.float32)).max()) > 1e-2:
            wrong.append(f"{n}: differs by {float(mx.abs(a.astype(mx.float32) - b.astype(mx.float32)).max())}")
    print(f"{name}: {len(theirs)} tensors, {len(wrong)} differences", *wrong, sep="\n  ")

    model = model_of(plain)
    overrides = config["quantization"]
    nn.quantize(model, 64, 4, class_predicate=lambda p, m: overrides.get(p, f"{p}.scales" in ours))
    model.load_weights([(n, t if t.dtype == mx.uint32 else t.astype(mx.float32)) for n, t in ours.items()])
    with open(folder / "tokens.json", encoding="utf-8") as file:
        tokens = json.load(file)
    logits = np.array(model(mx.array([tokens]))[0].astype(mx.float32))
    apart = float(np.abs(logits - np.load(folder / "ref_logits_mlx.npy")).max())
    print(f"  logits of mlx-lm: {apart:.2g} apart, of up to {np.abs(logits).max():.2g}")
    return not wrong and apart < 0.01


def main():
    return 0 if all([compare(name) for name in sys.argv[1:] or QUANTIZED]) else 1


if __name__ == "__main__":
    sys.exit(main())
