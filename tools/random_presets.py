"""Dimensions of published models, for make_random_checkpoint.py: their config.json, as far as sizes go."""

QWEN35_ROPE = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25, "mrope_section": [11, 11, 10],
               "mrope_interleaved": True}
DELTA = dict(head_dim=256, linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
             linear_value_head_dim=128, linear_conv_kernel_dim=4, full_attention_interval=4, rms_norm_eps=1e-6,
             max_position_embeddings=262144, tie_word_embeddings=False)
QWEN35 = dict(DELTA, vocab_size=248320, rope_parameters=QWEN35_ROPE)
NEMOTRON = dict(
    vocab_size=131072, hidden_size=2688, num_attention_heads=32, num_key_value_heads=2, head_dim=128, mamba_num_heads=64,
    hybrid_override_pattern="MEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEM*EMEMEMEM*EMEMEMEME", mamba_head_dim=64, ssm_state_size=128,
    n_groups=8, conv_kernel=4, chunk_size=128, use_conv_bias=True, use_bias=False, mlp_bias=False, n_routed_experts=128,
    num_experts_per_tok=6, n_shared_experts=1, moe_intermediate_size=1856, moe_shared_expert_intermediate_size=3712,
    intermediate_size=1856, n_group=1, topk_group=1, norm_topk_prob=True, routed_scaling_factor=2.5, layer_norm_epsilon=1e-5,
    tie_word_embeddings=False, max_position_embeddings=262144)


def dense(hidden, intermediate, layers, heads, kv_heads, head_dim, vocab, tied, theta=1e6, context=32768, eps=1e-6, **more):
    return dict(hidden_size=hidden, intermediate_size=intermediate, num_hidden_layers=layers, num_attention_heads=heads,
                num_key_value_heads=kv_heads, head_dim=head_dim, vocab_size=vocab, tie_word_embeddings=tied, rms_norm_eps=eps,
                max_position_embeddings=context, rope_parameters={"rope_type": "default", "rope_theta": theta}, **more)


GEMMA = dict(query_pre_attn_scalar=256, rope_local_base_freq=1e4, hidden_activation="gelu_pytorch_tanh")
# name -> (family, vocabulary of random_tokenizer.py, config)
PRESETS = {
    "qwen3.6-35b-a3b": ("qwen3_5_moe", "qwen35", dict(
        QWEN35, hidden_size=2048, num_hidden_layers=40, num_attention_heads=16, num_key_value_heads=2, num_experts=256,
        num_experts_per_tok=8, moe_intermediate_size=512, shared_expert_intermediate_size=512)),
    "qwen3.8-27b": ("qwen3_5", "qwen35", dict(
        QWEN35, hidden_size=5120, num_hidden_layers=64, num_attention_heads=24, num_key_value_heads=4, intermediate_size=17408,
        linear_num_value_heads=48)),
    "qwen3-next-80b-a3b": ("qwen3_next", "qwen3", dict(
        DELTA, hidden_size=2048, num_hidden_layers=48, num_attention_heads=16, num_key_value_heads=2, num_experts=512,
        num_experts_per_tok=10, moe_intermediate_size=512, shared_expert_intermediate_size=512, intermediate_size=5120,
        norm_topk_prob=True, vocab_size=151936,
        rope_parameters={"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25})),
    "qwen3-30b-a3b": ("qwen3_moe", "qwen3", dense(
        2048, 6144, 48, 32, 4, 128, 151936, False, 1e6, 40960, num_experts=128, num_experts_per_tok=8,
        moe_intermediate_size=768, norm_topk_prob=True)),
    "nemotron-3-nano-30b-a3b": ("nemotron_h", "nemotron", NEMOTRON),
    "nemotron-3.5-lightning-30b-a3b": ("nemotron_h", "nemotron", dict(NEMOTRON, max_position_embeddings=1 << 20)),
    "smollm2-135m": ("llama", "smollm", dense(576, 1536, 30, 9, 3, 64, 49152, True, 1e5, 8192, 1e-5)),
    "smollm2-1.7b": ("llama", "smollm", dense(2048, 8192, 24, 32, 32, 64, 49152, True, 1.3e5, 8192, 1e-5)),
    "llama-3.2-1b": ("llama", "llama3", dense(2048, 8192, 16, 32, 8, 64, 128256, True, 5e5, 131072, 1e-5)),
    "llama-3.1-8b": ("llama", "llama3", dense(4096, 14336, 32, 32, 8, 128, 128256, False, 5e5, 131072, 1e-5)),
    "qwen2.5-0.5b": ("qwen2", "qwen2", dense(896, 4864, 24, 14, 2, 64, 151936, True)),
    "qwen2.5-1.5b": ("qwen2", "qwen2", dense(1536, 8960, 28, 12, 2, 128, 151936, True)),
    "qwen2.5-7b": ("qwen2", "qwen2", dense(3584, 18944, 28, 28, 4, 128, 152064, False)),
    "qwen3-0.6b": ("qwen3", "qwen3", dense(1024, 3072, 28, 16, 8, 128, 151936, True)),
    "qwen3-4b": ("qwen3", "qwen3", dense(2560, 9728, 36, 32, 8, 128, 151936, True)),
    "qwen3-8b": ("qwen3", "qwen3", dense(4096, 12288, 36, 32, 8, 128, 151936, False)),
    "gemma-3-270m": ("gemma3", "gemma", dense(640, 2048, 18, 4, 1, 256, 262144, True, **GEMMA, sliding_window=512)),
    "gemma-3-1b": ("gemma3", "gemma", dense(1152, 6912, 26, 4, 1, 256, 262144, True, **GEMMA, sliding_window=512)),
    "gemma-3-4b": ("gemma3", "gemma", dense(2560, 10240, 34, 8, 4, 256, 262144, True, **GEMMA, sliding_window=1024)),
}
NEMOTRON_KINDS = {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"}


def config_of(name, layers=0):
    """-> (family, vocabulary, config with a kind for every layer), cut to the first `layers` layers."""
    family, vocabulary, config = PRESETS[name]
    config = dict(config)
    if family == "nemotron_h":
        config["num_hidden_layers"] = len(config["hybrid_override_pattern"])
    if layers > config["num_hidden_layers"]:
        raise ValueError(f"{name} has {config['num_hidden_layers']} layers")
    count = config["num_hidden_layers"] = layers or config["num_hidden_layers"]
    if family == "nemotron_h":
        config["hybrid_override_pattern"] = config["hybrid_override_pattern"][:count]
        config["layers_block_type"] = [NEMOTRON_KINDS[kind] for kind in config["hybrid_override_pattern"]]
    elif "full_attention_interval" in config:
        every = config["full_attention_interval"]
        config["layer_types"] = ["linear_attention" if (i + 1) % every else "full_attention" for i in range(count)]
    return family, vocabulary, config
