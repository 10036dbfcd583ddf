"""A model of transformers as a GGUF: names, transformations and metadata.

Written from the tables of specs/qwen3_5.md sections 11 and 12, specs/nemotron_h.md section 8 and
specs/weights.md section 3.5; make_hybrid_goldens.py --converter compares with llama.cpp's own conversion.
"""

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type

GGUF_ARCHITECTURES = {"qwen3_moe": "qwen3moe", "qwen3_5": "qwen35", "qwen3_5_moe": "qwen35moe", "qwen3_next": "qwen3next",
                      "llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3": "gemma3"}

ATTENTION = {f"self_attn.{a}": b for a, b in (
    ("q_proj", "attn_q"), ("k_proj", "attn_k"), ("v_proj", "attn_v"), ("o_proj", "attn_output"), ("q_norm", "attn_q_norm"),
    ("k_norm", "attn_k_norm"))}
MLP = {"mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "mlp.gate": "ffn_gate_inp",
       "mlp.experts.down_proj": "ffn_down_exps", "mlp.shared_expert_gate": "ffn_gate_inp_shexp",
       "mlp.shared_expert.gate_proj": "ffn_gate_shexp", "mlp.shared_expert.up_proj": "ffn_up_shexp",
       "mlp.shared_expert.down_proj": "ffn_down_shexp"}
DELTA = {f"linear_attn.{a}": b for a, b in (
    ("in_proj_qkv", "attn_qkv"), ("in_proj_z", "attn_gate"), ("in_proj_b", "ssm_beta"), ("in_proj_a", "ssm_alpha"),
    ("in_proj_ba", "ssm_ba"), ("conv1d", "ssm_conv1d"), ("norm", "ssm_norm"), ("out_proj", "ssm_out"))}
QWEN_LAYER = {"input_layernorm": "attn_norm", **ATTENTION, **MLP, **DELTA}
LAYER_OF = {  # what differs from QWEN_LAYER
    "gemma3": {"post_attention_layernorm": "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
               "post_feedforward_layernorm": "post_ffw_norm"},
    **{family: {"post_attention_layernorm": "ffn_norm"} for family in ("llama", "qwen2", "qwen3", "qwen3_moe")}}
VISIBLE_ONE = ("llama", "qwen2", "qwen3", "qwen3_moe", "nemotron_h")  # gains are stored with their 1
QWEN_MTP = {"fc": "nextn.eh_proj", "pre_fc_norm_embedding": "nextn.enorm", "pre_fc_norm_hidden": "nextn.hnorm",
            "norm": "nextn.shared_head_norm"}
NEMOTRON_MIXER = {
    "in_proj": "ssm_in", "conv1d": "ssm_conv1d", "norm": "ssm_norm", "out_proj": "ssm_out", "q_proj": "attn_q",
    "k_proj": "attn_k", "v_proj": "attn_v", "o_proj": "attn_output", "gate": "ffn_gate_inp", "up_proj": "ffn_up",
    "down_proj": "ffn_down", "experts.up_proj": "ffn_up_exps", "experts.down_proj": "ffn_down_exps",
    "shared_experts.up_proj": "ffn_up_shexp", "shared_experts.down_proj": "ffn_down_shexp",
    "fc1_latent_proj": "ffn_latent_down", "fc2_latent_proj": "ffn_latent_up"}
NEMOTRON_MTP = {"layers.0.enorm": "nextn.enorm", "layers.0.hnorm": "nextn.hnorm", "layers.0.eh_proj": "nextn.eh_proj",
                "layers.0.norm": "attn_norm", "layers.1.norm": "post_attention_norm",
                "layers.1.final_layernorm": "nextn.shared_head_norm"}


def architecture_of(family, config):
    if family != "nemotron_h":
        return GGUF_ARCHITECTURES[family]
    return "nemotron_h_moe" if "moe" in config["layers_block_type"] else "nemotron_h"


def split_suffix(name):
    for suffix in (".weight", ".bias"):
        if name.endswith(suffix):
            return name.removesuffix(suffix), suffix
    return name, ".weight"  # stacked experts have none


def tiled(values, axis, config, head_dim):
    """Value heads from "behind their key head" to "one of each key head, again and again"."""
    keys = config["linear_num_key_heads"]
    values = np.moveaxis(values, axis, 0)
    heads = values.reshape(keys, config["linear_num_value_heads"] // keys, head_dim, *values.shape[1:])
    return np.moveaxis(heads.swapaxes(0, 1).reshape(values.shape), 0, axis)


def reorder_value_heads(name, values, config):
    dim = config["linear_value_head_dim"]
    first_value = 2 * config["linear_num_key_heads"] * config["linear_key_head_dim"]
    if name in ("in_proj_qkv.weight", "conv1d.weight"):
        return np.concatenate([values[:first_value], tiled(values[first_value:], 0, config, dim)])
    if name == "in_proj_z.weight":
        return tiled(values, 0, config, dim)
    if name == "out_proj.weight":
        return tiled(values, 1, config, dim)
    return values if name == "norm.weight" else tiled(values, 0, config, 1)


def split_fused_qkvz(values, config):
    """qwen3_next: rows stand per key head as q, k, its v, its z. -> ([q of all | k | v], z)"""
    keys, k_dim = config["linear_num_key_heads"], config["linear_key_head_dim"]
    v_dim = config["linear_num_value_heads"] // keys * config["linear_value_head_dim"]
    heads = values.reshape(keys, 2 * k_dim + 2 * v_dim, -1)
    q, k, v, z = (part.reshape(-1, values.shape[-1]) for part in np.split(heads, np.cumsum([k_dim, k_dim, v_dim]), axis=1))
    return np.concatenate([q, k, v]), z


def paired(values, config):
    """Rows of each head from halves to adjacent pairs."""
    heads = values.reshape(-1, 2, config["head_dim"] // 2, values.shape[-1])
    return heads.swapaxes(1, 2).reshape(values.shape)


def qwen_tensors(family, module, values, config, block):
    """One tensor of a layer, `module` its name inside."""
    if module.endswith("norm.weight") and family not in VISIBLE_ONE and not module.startswith("linear_attn."):
        values = values + 1
    if family == "llama" and module in ("self_attn.q_proj.weight", "self_attn.k_proj.weight"):
        values = paired(values, config)
    if module.startswith("linear_attn."):
        inner = module.removeprefix("linear_attn.")
        if inner == "in_proj_qkvz.weight":
            qkv, z = split_fused_qkvz(values, config)
            yield f"{block}.attn_qkv.weight", qkv
            yield f"{block}.attn_gate.weight", z
            return
        if inner == "conv1d.weight":
            values = values[:, 0]
        if family != "qwen3_next":
            values = reorder_value_heads(inner, values, config)
        if inner == "A_log":
            yield f"{block}.ssm_a", -np.exp(values)
            return
        if inner == "dt_bias":
            yield f"{block}.ssm_dt.bias", values
            return
    if module == "mlp.experts.gate_up_proj":
        for part, half in zip(("gate", "up"), np.split(values, 2, axis=1)):
            yield f"{block}.ffn_{part}_exps.weight", half
        return
    stem, suffix = split_suffix(module)
    names = QWEN_LAYER | LAYER_OF.get(family, {"post_attention_layernorm": "post_attention_norm"})
    yield f"{block}.{names[stem]}{suffix}", values


def nemotron_tensors(module, values, config, block):
    """`module`: behind "mixer."."""
    if module in ("A_log", "D"):
        yield f"{block}.ssm_{module[0].lower()}", (-np.exp(values) if module == "A_log" else values).reshape(-1, 1)
    elif module == "dt_bias":
        yield f"{block}.ssm_dt.bias", values
    elif module == "gate.e_score_correction_bias":
        yield f"{block}.exp_probs_b.bias", values
    else:
        stem, suffix = split_suffix(module)
        if module == "conv1d.weight":
            values = values[:, 0]
        if module == "norm.weight":
            values = values.reshape(config["n_groups"], -1)
        if stem in ("q_proj", "k_proj"):
            values = paired(values, config)
        yield f"{block}.{NEMOTRON_MIXER[stem]}{suffix}", values


def gguf_tensors(weights, family, config):
    """`weights`: names of transformers (and "mtp."), stacked experts. -> {GGUF name: F32 values}."""
    result = {}
    top = {"model.embed_tokens.weight": "token_embd.weight", "model.embeddings.weight": "token_embd.weight",
           "model.norm.weight": "output_norm.weight", "model.norm_f.weight": "output_norm.weight",
           "lm_head.weight": "output.weight"}
    last = config["num_hidden_layers"]
    for name, values in weights.items():
        values = np.asarray(values, np.float32)
        if name in top:
            if name == "lm_head.weight" and config["tie_word_embeddings"]:
                continue
            plus_one = name == "model.norm.weight" and family not in VISIBLE_ONE
            result[top[name]] = values + 1 if plus_one else values
            continue
        in_mtp = name.startswith("mtp.")
        rest = name.removeprefix("mtp." if in_mtp else "model.")
        stem, suffix = split_suffix(rest)
        extra = (NEMOTRON_MTP if family == "nemotron_h" else QWEN_MTP) if in_mtp else {}
        if stem in extra:
            plus_one = "norm" in stem and family != "nemotron_h"
            result[f"blk.{last}.{extra[stem]}{suffix}"] = values + 1 if plus_one else values
            continue
        _, layer, module = rest.split(".", 2)
        block = f"blk.{last if in_mtp else int(layer)}"
        if family == "nemotron_h":
            if module == "norm.weight":
                result[f"{block}.attn_norm.weight"] = values
            else:
                result |= nemotron_tensors(module.removeprefix("mixer."), values, config, block)
        else:
            result |= qwen_tensors(family, module, values, config, block)
    return {n: np.ascontiguousarray(v) for n, v in result.items()}


def add_metadata(writer, family, config, mtp):
    layers = config["num_hidden_layers"]
    writer.add_block_count(layers + (1 if mtp else 0))
    writer.add_embedding_length(config["hidden_size"])
    writer.add_vocab_size(config["vocab_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_key_length(config["head_dim"])
    writer.add_value_length(config["head_dim"])
    if mtp:
        writer.add_nextn_predict_layers(1)
    if family == "nemotron_h":
        add_nemotron_metadata(writer, config, mtp)
        return
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    rope = config["rope_parameters"]
    writer.add_rope_freq_base(rope["rope_theta"])
    if config.get("intermediate_size"):
        writer.add_feed_forward_length(config["intermediate_size"])
    if config.get("num_experts"):
        writer.add_expert_count(config["num_experts"])
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    if "linear_num_key_heads" not in config:
        return
    if config.get("num_experts"):
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    writer.add_rope_dimension_count(int(config["head_dim"] * rope["partial_rotary_factor"]))
    if family != "qwen3_next":
        writer.add_rope_dimension_sections([*rope["mrope_section"], 0])
    writer.add_ssm_conv_kernel(config["linear_conv_kernel_dim"])
    writer.add_ssm_state_size(config["linear_key_head_dim"])
    writer.add_ssm_group_count(config["linear_num_key_heads"])
    writer.add_ssm_time_step_rank(config["linear_num_value_heads"])
    writer.add_ssm_inner_size(config["linear_num_value_heads"] * config["linear_value_head_dim"])
    arch = writer.arch
    writer.add_uint32(f"{arch}.full_attention_interval", config.get("full_attention_interval", 4))
    recurrent = [kind == "linear_attention" for kind in config["layer_types"]] + [False] * mtp
    writer.add_array(f"{arch}.attention.recurrent_layers", recurrent)


def add_nemotron_metadata(writer, config, mtp):
    kinds = config["layers_block_type"] + ["mtp"] * mtp
    sparse = "moe" in kinds
    width = config["moe_intermediate_size" if sparse else "intermediate_size"]
    writer.add_context_length(1 << 20)  # the converter writes this whatever config.json says
    kv_heads = config["num_key_value_heads"]
    writer.add_head_count_kv([kv_heads if kind in ("full_attention", "mtp") else 0 for kind in kinds])
    writer.add_feed_forward_length([width if kind in ("moe", "mlp", "mtp") else 0 for kind in kinds])
    writer.add_layer_norm_eps(config["layer_norm_epsilon"])
    inner = config["mamba_num_heads"] * config["mamba_head_dim"]
    writer.add_ssm_conv_kernel(config["conv_kernel"])
    writer.add_ssm_inner_size(inner)
    writer.add_ssm_state_size(config["ssm_state_size"])
    writer.add_ssm_group_count(config["n_groups"])
    writer.add_ssm_time_step_rank(config["mamba_num_heads"])
    writer.add_rope_dimension_count(config["hidden_size"] // config["num_attention_heads"])  # unused
    writer.add_rope_scaling_finetuned(False)
    if not sparse:
        return
    writer.add_expert_count(config["n_routed_experts"])
    writer.add_expert_used_count(config["num_experts_per_tok"])
    writer.add_expert_feed_forward_length(config["moe_intermediate_size"])
    writer.add_expert_shared_count(config["n_shared_experts"])
    writer.add_expert_shared_feed_forward_length(config["moe_shared_expert_intermediate_size"])
    writer.add_expert_weights_norm(config["norm_topk_prob"])
    writer.add_expert_weights_scale(config["routed_scaling_factor"])
    writer.add_expert_group_count(config["n_group"])
    writer.add_expert_group_used_count(config["topk_group"])
    if config.get("moe_latent_size"):
        writer.add_uint32(f"{writer.arch}.moe_latent_size", config["moe_latent_size"])


def stays_float(name, values):
    """What converters and quantizers keep in F32."""
    if min(values.ndim, 2) < 2 or not name.endswith(".weight"):
        return True
    return name.endswith("norm.weight") or "ssm_conv1d" in name or "ffn_gate_inp" in name


def write_gguf(path, family, config, tensors, kind_of, encode, add_tokenizer=None):
    """`kind_of(name, values)`: the format of a matrix; `encode(values, kind)`: its rows as bytes."""
    writer = gguf.GGUFWriter(path, architecture_of(family, config))
    add_metadata(writer, family, config, any(".nextn." in name for name in tensors))
    if add_tokenizer is not None:
        add_tokenizer(writer)
    else:
        writer.add_string("tokenizer.ggml.model", "none")
    for name, values in tensors.items():
        kind = Type.F32 if stays_float(name, values) else kind_of(name, values)
        if kind == Type.F32:
            writer.add_tensor(name, values)
        else:
            writer.add_tensor(name, encode(values, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
