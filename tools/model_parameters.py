"""The parameters of every supported family by transformers' names: what a checkpoint of a config.json holds.

Experts are stacked, as transformers has them in memory; make_hybrid_goldens.py holds this list against
transformers itself for the families of which there are golden checkpoints.
"""


def swiglu(at, inner, d):
    yield at + "gate_proj.weight", (inner, d)
    yield at + "up_proj.weight", (inner, d)
    yield at + "down_proj.weight", (d, inner)


def attention(family, c, at):
    d, dim = c["hidden_size"], c["head_dim"]
    q_rows, kv_rows = c["num_attention_heads"] * dim, c["num_key_value_heads"] * dim
    gated = 2 if family.startswith("qwen3_5") or family == "qwen3_next" else 1
    for name, rows in (("q", q_rows * gated), ("k", kv_rows), ("v", kv_rows)):
        yield f"{at}{name}_proj.weight", (rows, d)
        if family == "qwen2":
            yield f"{at}{name}_proj.bias", (rows,)
    yield at + "o_proj.weight", (d, q_rows)
    if family not in ("llama", "qwen2", "nemotron_h"):
        yield at + "q_norm.weight", (dim,)
        yield at + "k_norm.weight", (dim,)


def delta_net(family, c, at):
    d = c["hidden_size"]
    key = c["linear_num_key_heads"] * c["linear_key_head_dim"]
    heads = c["linear_num_value_heads"]
    value = heads * c["linear_value_head_dim"]
    yield at + "dt_bias", (heads,)
    yield at + "A_log", (heads,)
    yield at + "conv1d.weight", (2 * key + value, 1, c["linear_conv_kernel_dim"])
    if family == "qwen3_next":
        yield at + "in_proj_qkvz.weight", (2 * key + 2 * value, d)
        yield at + "in_proj_ba.weight", (2 * heads, d)
    else:
        yield at + "in_proj_qkv.weight", (2 * key + value, d)
        yield at + "in_proj_z.weight", (value, d)
        yield at + "in_proj_b.weight", (heads, d)
        yield at + "in_proj_a.weight", (heads, d)
    yield at + "norm.weight", (c["linear_value_head_dim"],)
    yield at + "out_proj.weight", (d, value)


def is_sparse(c, layer):
    if "num_experts" not in c or layer in (c.get("mlp_only_layers") or []):
        return False
    return (layer + 1) % c.get("decoder_sparse_step", 1) == 0


def qwen_feed_forward(c, at, sparse):
    d = c["hidden_size"]
    if not sparse:
        yield from swiglu(at, c["intermediate_size"], d)
        return
    inner = c["moe_intermediate_size"]
    yield at + "gate.weight", (c["num_experts"], d)
    yield at + "experts.gate_up_proj", (c["num_experts"], 2 * inner, d)
    yield at + "experts.down_proj", (c["num_experts"], d, inner)
    if "shared_expert_intermediate_size" in c:
        yield from swiglu(at + "shared_expert.", c["shared_expert_intermediate_size"], d)
        yield at + "shared_expert_gate.weight", (1, d)


def mamba(c, at):
    d, heads = c["hidden_size"], c["mamba_num_heads"]
    inner = heads * c["mamba_head_dim"]
    conv = inner + 2 * c["n_groups"] * c["ssm_state_size"]
    yield at + "dt_bias", (heads,)
    yield at + "A_log", (heads,)
    yield at + "D", (heads,)
    yield at + "conv1d.weight", (conv, 1, c["conv_kernel"])
    if c.get("use_conv_bias", True):
        yield at + "conv1d.bias", (conv,)
    yield at + "in_proj.weight", (inner + conv + heads, d)
    yield at + "norm.weight", (inner,)
    yield at + "out_proj.weight", (d, inner)
    if c.get("use_bias"):
        yield at + "in_proj.bias", (inner + conv + heads,)
        yield at + "out_proj.bias", (d,)


def two_matrices(c, at, inner):
    yield at + "up_proj.weight", (inner, c["hidden_size"])
    yield at + "down_proj.weight", (c["hidden_size"], inner)
    if c.get("mlp_bias"):
        yield at + "up_proj.bias", (inner,)
        yield at + "down_proj.bias", (c["hidden_size"],)


def nemotron_moe(c, at):
    d, experts, inner = c["hidden_size"], c["n_routed_experts"], c["moe_intermediate_size"]
    width = c.get("moe_latent_size") or d
    yield at + "gate.weight", (experts, d)
    yield at + "gate.e_score_correction_bias", (experts,)
    yield at + "experts.up_proj", (experts, inner, width)
    yield at + "experts.down_proj", (experts, width, inner)
    yield from two_matrices(c, at + "shared_experts.", c["moe_shared_expert_intermediate_size"])
    if width != d:
        for name, rows, columns in (("fc1_latent_proj", width, d), ("fc2_latent_proj", d, width)):
            yield f"{at}{name}.weight", (rows, columns)
            if c.get("mlp_bias"):
                yield f"{at}{name}.bias", (rows,)


def nemotron_mixer(c, at, kind):
    if kind == "linear_attention":
        return mamba(c, at)
    if kind == "full_attention":
        return attention("nemotron_h", c, at)
    return nemotron_moe(c, at) if kind == "moe" else two_matrices(c, at, c["intermediate_size"])


def layer_parameters(family, c, layer):
    at, d = f"model.layers.{layer}.", c["hidden_size"]
    if family == "nemotron_h":
        yield at + "norm.weight", (d,)
        yield from nemotron_mixer(c, at + "mixer.", c["layers_block_type"][layer])
        return
    for name in ("input_layernorm", "post_attention_layernorm"):
        yield f"{at}{name}.weight", (d,)
    if family == "gemma3":
        for name in ("pre_feedforward_layernorm", "post_feedforward_layernorm"):
            yield f"{at}{name}.weight", (d,)
    if c.get("layer_types", ["full_attention"] * (layer + 1))[layer] == "linear_attention":
        yield from delta_net(family, c, at + "linear_attn.")
    else:
        yield from attention(family, c, at + "self_attn.")
    yield from qwen_feed_forward(c, at + "mlp.", is_sparse(c, layer))


def mtp_parameters(family, c):
    d = c["hidden_size"]
    if family == "nemotron_h":
        at = "mtp.layers.0."
        for name in ("enorm", "hnorm", "norm"):
            yield f"{at}{name}.weight", (d,)
        yield at + "eh_proj.weight", (d, 2 * d)
        yield from attention(family, c, at + "mixer.")
        yield "mtp.layers.1.norm.weight", (d,)
        yield "mtp.layers.1.final_layernorm.weight", (d,)
        yield from nemotron_moe(c, "mtp.layers.1.mixer.")
        return
    yield "mtp.fc.weight", (d, 2 * d)
    for name in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm", "layers.0.input_layernorm",
                 "layers.0.post_attention_layernorm"):
        yield f"mtp.{name}.weight", (d,)
    yield from attention(family, c, "mtp.layers.0.self_attn.")
    yield from qwen_feed_forward(c, "mtp.layers.0.mlp.", "num_experts" in c)


def parameters(family, c, mtp=False):
    """(name, shape) of everything in the checkpoint, the trunk in order of its layers."""
    d, nemotron = c["hidden_size"], family == "nemotron_h"
    yield "model.embeddings.weight" if nemotron else "model.embed_tokens.weight", (c["vocab_size"], d)
    for layer in range(c["num_hidden_layers"]):
        yield from layer_parameters(family, c, layer)
    yield "model.norm_f.weight" if nemotron else "model.norm.weight", (d,)
    if not c["tie_word_embeddings"]:
        yield "lm_head.weight", (c["vocab_size"], d)
    if mtp:
        yield from mtp_parameters(family, c)
