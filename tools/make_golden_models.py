#!/usr/bin/env python3
"""Makes tests/golden/models: per family a tiny random checkpoint and transformers' logits for it.

usage: make_golden_models.py [--out FOLDER] [FAMILY ...]

Each folder gets config.json, model.safetensors, model.gguf (F32), tokens.json (75 ids) and
ref_logits.npy [75, 96] (transformers, eager attention, fp32). The committed model.gguf files came from
llama.cpp's own converter, so that our idea of the conversion is not tested against itself; a folder made
by this script alone gets this script's. Every parameter is random: norm weights
of 1 and biases of 0, as a fresh model has them, would hide mistakes. Needs torch, transformers and
gguf (versions that made the committed set: transformers 5.24), which the project's own tests do not.
gemma3 also gets ref_logits_gguf.npy: GGUF cannot say query_pre_attn_scalar, so the logits of the
GGUF file are those of the same weights with the scalar equal to head_dim. llama_mlx is an MLX folder:
affine 2 to 8 bits with per-module overrides, logits of transformers on the dequantized weights.
"""
import argparse
import json
import os

import gguf
import numpy as np
import safetensors.numpy
import torch
import transformers
from quantize import pack_bits, quantize_affine

VOCAB_SIZE, NUM_TOKENS = 96, 75
COMMON = dict(vocab_size=VOCAB_SIZE, hidden_size=48, intermediate_size=80, num_hidden_layers=7, num_attention_heads=4,
              num_key_value_heads=2, max_position_embeddings=512)
FAMILIES = {  # family -> (class stem of transformers, config)
    "llama": ("Llama", dict(COMMON, head_dim=16, rms_norm_eps=1e-5, tie_word_embeddings=True,
                            rope_parameters={"rope_type": "default", "rope_theta": 1e5})),
    "llama3": ("Llama", dict(COMMON, head_dim=16, rms_norm_eps=1e-5, rope_parameters={
        "rope_type": "llama3", "rope_theta": 5e5, "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
        "original_max_position_embeddings": 64})),
    "qwen2": ("Qwen2", dict(COMMON, rms_norm_eps=1e-6, tie_word_embeddings=True,
                            rope_parameters={"rope_type": "default", "rope_theta": 1e6})),
    "qwen3": ("Qwen3", dict(COMMON, head_dim=16, rms_norm_eps=1e-6, rope_parameters={
        "rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0, "original_max_position_embeddings": 64})),
    "gemma3": ("Gemma3", dict(COMMON, head_dim=16, num_key_value_heads=1, rms_norm_eps=1e-6, sliding_window=12,
                              query_pre_attn_scalar=20, rope_parameters={
                                  "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
                                  "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}})),
}


def make_model(family, **changes):
    stem, arguments = FAMILIES[family]
    config_class = transformers.Gemma3TextConfig if family == "gemma3" else getattr(transformers, stem + "Config")
    config = config_class(**dict(arguments, **changes))
    model = getattr(transformers, stem + "ForCausalLM")._from_config(
        config, dtype=torch.float32, attn_implementation="eager").eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            values = torch.randn(parameter.shape, generator=generator)
            if "norm" in name:
                values = 0.3 * values + parameter.mean().round()
            elif "embed" in name:
                values *= 0.7
            else:
                values *= 0.15
            parameter.copy_(values)
    return model


def logits_of(model, tokens):
    with torch.no_grad():
        return model(torch.tensor([tokens]), use_cache=False).logits[0].numpy()


GGUF_NAMES = {
    "input_layernorm": "attn_norm", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output", "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm", "post_attention_layernorm": "ffn_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down",
}
GEMMA_NAMES = dict(GGUF_NAMES, post_attention_layernorm="post_attention_norm", pre_feedforward_layernorm="ffn_norm",
                   post_feedforward_layernorm="post_ffw_norm")


def write_gguf(path, family, model):
    """The same weights under GGUF's names and conventions (specs/weights.md sections 3.4 to 3.6)."""
    arch = {"llama3": "llama"}.get(family, family)
    config = model.config
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    writer = gguf.GGUFWriter(path, arch)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_key_length(head_dim)
    writer.add_value_length(head_dim)
    writer.add_rope_dimension_count(head_dim)
    rope = config.rope_parameters
    if arch == "gemma3":
        writer.add_sliding_window(config.sliding_window)
        writer.add_float32("gemma3.rope.freq_base_swa", rope["sliding_attention"]["rope_theta"])
        rope = rope["full_attention"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if rope["rope_type"] in ("linear", "yarn"):
        writer.add_string(f"{arch}.rope.scaling.type", rope["rope_type"])
        writer.add_float32(f"{arch}.rope.scaling.factor", rope["factor"])
        if rope["rope_type"] == "yarn":
            writer.add_uint32(f"{arch}.rope.scaling.original_context_length", rope["original_max_position_embeddings"])
    if rope["rope_type"] == "llama3":
        frequencies = rope["rope_theta"] ** (-np.arange(0, head_dim, 2) / head_dim)
        turns = rope["original_max_position_embeddings"] * frequencies / (2 * np.pi)
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        smooth = np.clip((turns - low) / (high - low), 0, 1)
        writer.add_tensor("rope_freqs.weight", (1 / ((1 - smooth) / rope["factor"] + smooth)).astype(np.float32))
    writer.add_string("tokenizer.ggml.model", "none")
    writer.add_uint32(f"{arch}.vocab_size", config.vocab_size)

    top = {"model.embed_tokens.weight": "token_embd.weight", "model.norm.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}
    for name, tensor in model.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        values = tensor.numpy().astype(np.float32)
        if arch == "gemma3" and "norm" in name:
            values = values + 1
        if name not in top:
            layer, module = name.removeprefix("model.layers.").split(".", 1)
            stem, suffix = module.rsplit(".", 1)
            if arch == "llama" and stem in ("self_attn.q_proj", "self_attn.k_proj"):  # halves -> adjacent pairs
                rows = values.reshape(-1, 2, head_dim // 2, *values.shape[1:])
                values = np.ascontiguousarray(rows.swapaxes(1, 2)).reshape(values.shape)
            stem = (GEMMA_NAMES if arch == "gemma3" else GGUF_NAMES)[stem]
        writer.add_tensor(top.get(name) or f"blk.{layer}.{stem}.{suffix}", values)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# module -> (bits, group_size); None: stays float. Every other matrix takes MLX_DEFAULT.
MLX_DEFAULT = (4, 64)
MLX_OVERRIDES = {
    "model.embed_tokens": (8, 32), "model.layers.0.self_attn.q_proj": (6, 32), "model.layers.0.mlp.down_proj": (3, 64),
    "model.layers.1.self_attn.v_proj": (5, 64), "model.layers.1.mlp.gate_proj": (2, 32),
    "model.layers.2.self_attn.o_proj": None, "model.layers.2.mlp.up_proj": (8, 128), "model.layers.2.mlp.gate_proj": (4, 128),
}


def make_mlx_folder(folder, tokens):
    FAMILIES["llama_mlx"] = ("Llama", dict(COMMON, hidden_size=128, intermediate_size=256, num_hidden_layers=3, head_dim=32,
                                           rms_norm_eps=1e-5, tie_word_embeddings=True,
                                           rope_parameters={"rope_type": "default", "rope_theta": 1e5}))
    model = make_model("llama_mlx")
    tensors, overrides = {}, {}
    for name, parameter in model.named_parameters():
        module = name.removesuffix(".weight")
        if parameter.dim() == 1 or MLX_OVERRIDES.get(module, 0) is None:
            half = parameter.detach().numpy().astype(np.float16)
            tensors[name] = half
            with torch.no_grad():
                parameter.copy_(torch.from_numpy(half.astype(np.float32)))
            if parameter.dim() > 1:
                overrides[module] = False
            continue
        bits, group_size = MLX_OVERRIDES.get(module, MLX_DEFAULT)
        if module in MLX_OVERRIDES:
            overrides[module] = {"bits": bits, "group_size": group_size}
        codes, *factors = quantize_affine(parameter.detach().numpy(), bits, group_size)
        scales, biases = (factor.astype(np.float16) for factor in factors)
        tensors[name], tensors[module + ".scales"], tensors[module + ".biases"] = pack_bits(codes, bits), scales, biases
        wide = [np.repeat(t.astype(np.float32), group_size, axis=1) for t in (scales, biases)]
        with torch.no_grad():
            parameter.copy_(torch.from_numpy(codes.astype(np.float32) * wide[0] + wide[1]))
    os.makedirs(folder, exist_ok=True)
    safetensors.numpy.save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "mlx"})
    config = json.loads(model.config.to_json_string(use_diff=False))
    config["architectures"] = ["LlamaForCausalLM"]
    config["quantization"] = {"bits": MLX_DEFAULT[0], "group_size": MLX_DEFAULT[1], "mode": "affine", **overrides}
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=2)
    np.save(os.path.join(folder, "ref_logits.npy"), logits_of(model, tokens))
    with open(os.path.join(folder, "tokens.json"), "w", encoding="utf-8") as file:
        json.dump(tokens, file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    parser.add_argument("--out", default=os.path.join(here, "tests", "golden", "models"))
    parser.add_argument("families", nargs="*", metavar="FAMILY", help=f"default: {', '.join(FAMILIES)}")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    tokens = [int(t) for t in np.random.default_rng(1).integers(0, VOCAB_SIZE, NUM_TOKENS)]
    for family in arguments.families or [*FAMILIES, "llama_mlx"]:
        folder = os.path.join(arguments.out, family)
        if family == "llama_mlx":
            make_mlx_folder(folder, tokens)
            print(folder)
            continue
        os.makedirs(folder, exist_ok=True)
        model = make_model(family)
        model.save_pretrained(folder)
        if os.path.exists(os.path.join(folder, "generation_config.json")):
            os.remove(os.path.join(folder, "generation_config.json"))
        np.save(os.path.join(folder, "ref_logits.npy"), logits_of(model, tokens))
        if family == "gemma3":
            same_scale = make_model(family, query_pre_attn_scalar=model.config.head_dim)
            np.save(os.path.join(folder, "ref_logits_gguf.npy"), logits_of(same_scale, tokens))
        with open(os.path.join(folder, "tokens.json"), "w", encoding="utf-8") as file:
            json.dump(tokens, file)
        write_gguf(os.path.join(folder, "model.gguf"), family, model)
        print(folder)


if __name__ == "__main__":
    main()
