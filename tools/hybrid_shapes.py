"""The tiny checkpoints of tests/golden/models that make_hybrid_goldens.py makes: one entry a folder.

Sizes are chosen to be unlike each other: a swapped pair of dimensions then fails to load or to agree.
"""

import dataclasses

VOCAB_SIZE = 96


@dataclasses.dataclass
class Golden:
    family: str  # model_type
    config: dict  # what the family's class in transformers is made with
    published: dict = dataclasses.field(default_factory=dict)  # in config.json instead or besides
    mtp: bool = False
    nested: bool = False  # text_config, "model.language_model." and a tensor of a vision tower
    fused_experts: bool = False  # experts.gate_up_proj [E, 2I, D], else a tensor per expert
    ssm_float32: bool = False  # A_log and the gain of the gated norm in F32, the rest in BF16
    gguf: bool = False
    seed: int = 0


def rope(theta, partial=None, section=None):
    result = {"rope_type": "default", "rope_theta": theta}
    if partial is not None:
        result["partial_rotary_factor"] = partial
    if section is not None:
        result |= {"mrope_section": section, "mrope_interleaved": True}
    return result


COMMON = dict(vocab_size=VOCAB_SIZE, hidden_size=48, num_attention_heads=4, num_key_value_heads=2, max_position_embeddings=512)
DELTA = dict(COMMON, head_dim=32, linear_num_key_heads=2, linear_num_value_heads=6, linear_key_head_dim=16,
             linear_value_head_dim=16, linear_conv_kernel_dim=4, rms_norm_eps=1e-6)
EXPERTS = dict(num_experts=7, num_experts_per_tok=3, moe_intermediate_size=24)
# transformers clamps dt at time_step_min in its prefill, though not in its decoding: 1e-30 switches that
# off. The published 0.001 stands in config.json, and must not be acted on (specs/nemotron_h.md section 3).
MAMBA = dict(COMMON, head_dim=24, mamba_num_heads=8, mamba_head_dim=16, ssm_state_size=12, n_groups=4, conv_kernel=4,
             chunk_size=32, layer_norm_epsilon=1e-5, time_step_min=1e-30, intermediate_size=56)
NEMOTRON_EXPERTS = dict(n_routed_experts=7, num_experts_per_tok=3, moe_intermediate_size=40, n_shared_experts=1,
                        moe_shared_expert_intermediate_size=64, routed_scaling_factor=2.5)
MTP_KEY = {"mtp_num_hidden_layers": 1, "mtp_use_dedicated_embeddings": False}

GOLDENS = {
    "qwen3_moe": Golden(
        "qwen3_moe", dict(COMMON, **EXPERTS, head_dim=16, num_hidden_layers=4, intermediate_size=80, norm_topk_prob=True,
                          rms_norm_eps=1e-6, rope_parameters=rope(1e6)),
        published=dict(rope_theta=1e6, rope_scaling=None), gguf=True),
    # Dense layers between sparse ones; weights of the chosen experts that do not sum to one.
    "qwen3_moe_mixed": Golden(
        "qwen3_moe", dict(COMMON, head_dim=24, num_hidden_layers=5, intermediate_size=56, num_experts=5, num_experts_per_tok=2,
                          moe_intermediate_size=40, norm_topk_prob=False, decoder_sparse_step=2, mlp_only_layers=[1],
                          tie_word_embeddings=True, rms_norm_eps=1e-5, rope_parameters=rope(1e4)), seed=1),
    "qwen3_5": Golden(
        "qwen3_5", dict(DELTA, num_hidden_layers=5, intermediate_size=80, rope_parameters=rope(1e4, 0.5, [3, 3, 2])),
        published=dict(MTP_KEY, full_attention_interval=4, attn_output_gate=True, output_gate_type="swish",
                       mamba_ssm_dtype="float32"),
        mtp=True, nested=True, gguf=True, seed=2),
    # Heads of keys and values one to one and of different sizes, layers in no pattern, a small tied head.
    "qwen3_5_tied": Golden(
        "qwen3_5", dict(DELTA, hidden_size=40, num_attention_heads=3, num_key_value_heads=1, linear_num_key_heads=3,
                        linear_num_value_heads=3, linear_value_head_dim=24, num_hidden_layers=4, intermediate_size=72,
                        layer_types=["full_attention", "linear_attention", "linear_attention", "full_attention"],
                        tie_word_embeddings=True, rope_parameters=rope(1e7, 0.25, [2, 1, 1])),
        published=MTP_KEY, mtp=True, ssm_float32=True, seed=3),
    "qwen3_5_moe": Golden(
        "qwen3_5_moe", dict(DELTA, **EXPERTS, linear_num_value_heads=4, num_hidden_layers=5, shared_expert_intermediate_size=40,
                            rope_parameters=rope(1e4, 0.5, [3, 3, 2])),
        published=dict(MTP_KEY, full_attention_interval=4), mtp=True, nested=True, fused_experts=True, ssm_float32=True,
        gguf=True, seed=4),
    # One key head for three value heads; every expert is chosen, so that only the weights count.
    "qwen3_5_moe_tied": Golden(
        "qwen3_5_moe", dict(DELTA, num_experts=3, num_experts_per_tok=3, moe_intermediate_size=16, hidden_size=56,
                            linear_num_key_heads=1, linear_num_value_heads=3, num_hidden_layers=4,
                            shared_expert_intermediate_size=24, tie_word_embeddings=True,
                            rope_parameters=rope(1e6, 0.25, [2, 1, 1])), seed=5),
    "qwen3_next": Golden(
        "qwen3_next", dict(DELTA, **EXPERTS, num_hidden_layers=5, intermediate_size=80, shared_expert_intermediate_size=40,
                           rope_parameters=rope(1e4, 0.5)),
        published=dict(rope_theta=1e4, partial_rotary_factor=0.5, full_attention_interval=4), gguf=True, seed=6),
    "qwen3_next_mixed": Golden(
        "qwen3_next", dict(DELTA, num_experts=5, num_experts_per_tok=1, moe_intermediate_size=40, num_hidden_layers=4,
                           linear_num_value_heads=4, intermediate_size=56, shared_expert_intermediate_size=16,
                           mlp_only_layers=[1], norm_topk_prob=False, tie_word_embeddings=True,
                           rope_parameters=rope(1e5, 0.25)),
        published=dict(rope_theta=1e5, partial_rotary_factor=0.25, full_attention_interval=4), mtp=True, seed=7),
    "nemotron_h": Golden(
        "nemotron_h", dict(MAMBA, **NEMOTRON_EXPERTS, hybrid_override_pattern="ME*-EM*E"),
        published=dict(hybrid_override_pattern="ME*-EM*E"), ssm_float32=True, seed=8),
    "nemotron_h_moe": Golden(
        "nemotron_h", dict(MAMBA, **NEMOTRON_EXPERTS, hybrid_override_pattern="MEM*EM*E"),
        published=dict(hybrid_override_pattern="MEM*EM*E", num_nextn_predict_layers=1, mtp_hybrid_override_pattern="*E"),
        mtp=True, gguf=True, seed=9),
    # Experts in a narrower space and in groups; biases; the newer spelling of the layers.
    "nemotron_h_latent": Golden(
        "nemotron_h", dict(MAMBA, **NEMOTRON_EXPERTS | dict(n_routed_experts=12), hybrid_override_pattern="MEME*EM",
                           moe_latent_size=32, n_group=4, topk_group=2, norm_topk_prob=False, use_bias=True, mlp_bias=True,
                           use_conv_bias=False, n_groups=2),
        published=dict(layers_block_type=["linear_attention", "moe", "linear_attention", "moe", "full_attention", "moe",
                                          "linear_attention"]), seed=10),
    "nemotron_h_dense": Golden(
        "nemotron_h", dict(MAMBA, hybrid_override_pattern="M-M*-M-", mamba_num_heads=6, n_groups=1, num_key_value_heads=1),
        published=dict(hybrid_override_pattern="M-M*-M-"), seed=11),
}

# Models of 256 columns, in which K formats fit; the narrower rows take formats with blocks of 32.
WIDE = dict(vocab_size=VOCAB_SIZE, hidden_size=256, num_attention_heads=4, num_key_value_heads=1, head_dim=64,
            max_position_embeddings=512)
WIDE_DELTA = dict(WIDE, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=32, linear_value_head_dim=64,
                  linear_conv_kernel_dim=4, rms_norm_eps=1e-6, num_hidden_layers=2,
                  layer_types=["linear_attention", "full_attention"], rope_parameters=rope(1e4, 0.5, [6, 5, 5]))
WIDE_EXPERTS = dict(num_experts=3, num_experts_per_tok=2, moe_intermediate_size=64)
QUANTIZED = {
    "qwen3_moe_quantized": Golden(
        "qwen3_moe", dict(WIDE, **WIDE_EXPERTS, num_hidden_layers=2, intermediate_size=64, norm_topk_prob=True,
                          rms_norm_eps=1e-6, rope_parameters=rope(1e6)),
        published=dict(rope_theta=1e6, rope_scaling=None), seed=20),
    "qwen3_5_quantized": Golden("qwen3_5", dict(WIDE_DELTA, intermediate_size=128, tie_word_embeddings=True),
                                published=dict(full_attention_interval=2), nested=True, seed=21),
    "qwen3_5_moe_quantized": Golden(
        "qwen3_5_moe", dict(WIDE_DELTA, **WIDE_EXPERTS, shared_expert_intermediate_size=128),
        published=dict(full_attention_interval=2), nested=True, seed=22),
    "nemotron_h_quantized": Golden(
        "nemotron_h", dict(WIDE, hybrid_override_pattern="ME*E", mamba_num_heads=4, mamba_head_dim=32, ssm_state_size=16,
                           n_groups=2, conv_kernel=4, chunk_size=32, layer_norm_epsilon=1e-5, time_step_min=1e-30,
                           n_routed_experts=3, num_experts_per_tok=2, moe_intermediate_size=64, n_shared_experts=1,
                           moe_shared_expert_intermediate_size=128, routed_scaling_factor=2.5),
        published=dict(hybrid_override_pattern="ME*E"), seed=23),
}
