"""A sparse or hybrid model of transformers as an MLX folder: names, shapes and affine codes.

Written from specs/qwen3_5.md section 9, specs/nemotron_h.md section 7 and specs/weights.md section 2;
check_mlx_layout.py compares with what mlx-lm makes of the same checkpoint.
"""

import json
import struct

import numpy as np
from hf_layout import bf16_bits, rounded_to_bf16
from quantize import pack_bits, quantize_affine

GROUP = 64
SHIFTED = (".input_layernorm.weight", ".post_attention_layernorm.weight", "model.norm.weight", ".q_norm.weight",
           ".k_norm.weight")


def is_shifted(name, values, family):
    """Gains that the files of publishers store without their 1, and MLX's with it."""
    return (family.startswith("qwen3_5") or family == "qwen3_next") and values.ndim == 1 and name.endswith(SHIFTED)


def mlx_tensors(weights, family, tied):
    """`weights`: names of transformers, stacked experts. -> {(MLX name, values)} and {its matrix's name in `weights`}.

    Values are those of `weights` but for gains, which get their 1; rows may be split off, never moved.
    """
    result = {}
    for name, values in weights.items():
        if name.startswith("mtp.") or (name == "lm_head.weight" and tied):
            continue
        new = name
        if family == "nemotron_h":
            new = new.replace("model.", "backbone.", 1)
            new = new.replace("experts.up_proj", "switch_mlp.fc1.weight") if new.endswith(".experts.up_proj") else new
            new = new.replace("experts.down_proj", "switch_mlp.fc2.weight") if new.endswith(".experts.down_proj") else new
        elif family.startswith("qwen3_5"):
            new = "language_model." + new
        if new.endswith("conv1d.weight"):
            values = values.swapaxes(1, 2)
        if is_shifted(new, values, family):
            values = values + 1
        if new.endswith(".experts.gate_up_proj"):
            at = new.removesuffix("experts.gate_up_proj") + "switch_mlp."
            for part, half in zip(("gate_proj", "up_proj"), np.split(values, 2, axis=1)):
                result[f"{at}{part}.weight"] = half
        elif new.endswith(".experts.down_proj"):
            result[new.removesuffix("experts.down_proj") + "switch_mlp.down_proj.weight"] = values
        else:
            result[new] = values
    return result


def bits_of(name, values, family):
    """4 bits for what mlx-lm quantizes, 8 for routers and the gates of shared experts, None: stays float."""
    if values.ndim < 2 or not name.endswith(".weight") or "conv1d" in name or values.shape[-1] % GROUP != 0:
        return None
    if family == "nemotron_h" and name.endswith("mixer.gate.weight"):
        return None
    return 8 if name.endswith((".mlp.gate.weight", ".shared_expert_gate.weight")) else 4


def quantized(values, bits):
    """-> (words, scales, biases, the values they stand for)"""
    codes, scales, biases = quantize_affine(values.astype(np.float32), bits, GROUP)
    scales, biases = rounded_to_bf16(scales), rounded_to_bf16(biases)
    wide = np.repeat(scales, GROUP, -1) * codes.astype(np.float32) + np.repeat(biases, GROUP, -1)
    return pack_bits(codes, bits), scales, biases, wide


def quantize_weights(weights, family):
    """-> `weights` as the file has them: what codes stand for, and gains rounded with their 1."""
    result = {}
    for name, values in weights.items():
        called = name if name.endswith(".weight") else name + ".weight"
        bits = bits_of(called, values, family)
        if is_shifted(name, values, family):
            values = rounded_to_bf16(values + 1) - 1
        result[name] = values if bits is None else quantized(values, bits)[3]
    return result


def write_mlx(folder, tensors, family, config):
    """model.safetensors and config.json, to which the quantization is added."""
    entries, quantization = {}, {"group_size": GROUP, "bits": 4, "mode": "affine"}
    for name, values in tensors.items():
        bits = bits_of(name, values, family)
        if bits is None:
            wide = name.endswith(("A_log", "e_score_correction_bias"))
            entries[name] = ("F32", values.astype("<f4")) if wide else ("BF16", bf16_bits(values))
            continue
        words, scales, biases, _ = quantized(values, bits)
        module = name.removesuffix(".weight")
        entries |= {name: ("U32", words), module + ".scales": ("BF16", bf16_bits(scales)),
                    module + ".biases": ("BF16", bf16_bits(biases))}
        if bits == 8:
            quantization[module] = {"group_size": GROUP, "bits": 8}
    header, at = {"__metadata__": {"format": "mlx"}}, 0
    for name, (dtype, values) in sorted(entries.items()):
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": [at, at + values.nbytes]}
        at += values.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(f"{folder}/model.safetensors", "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text)
        for _, (_, values) in sorted(entries.items()):
            out.write(np.ascontiguousarray(values).tobytes())
    with open(f"{folder}/config.json", "w", encoding="utf-8") as out:
        json.dump(config | {"quantization": quantization, "quantization_config": quantization}, out, indent=1)
