// Config keys as specs/qwen3_5.md section 2 and 12 have them, GGUF keys as section 11 does.
#include "models/qwen_line.h"

#include <algorithm>
#include <cmath>

#include "models/rope_config.h"

namespace invar {
namespace {

using Layer = HybridConfig::Layer;

// Hugging Face's keys, whatever the container.
Json config_of(const ModelSource& source, const QwenTraits& traits) {
  Json config = source.config();
  const std::pair<const char*, const char*> keys[] = {
      {"num_experts", "expert_count"},
      {"num_experts_per_tok", "expert_used_count"},
      {"moe_intermediate_size", "expert_feed_forward_length"},
      {"shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
      {"norm_topk_prob", "expert_weights_norm"},
      {"full_attention_interval", "full_attention_interval"},
      {"linear_conv_kernel_dim", "ssm.conv_kernel"},
      {"linear_key_head_dim", "ssm.state_size"},
      {"linear_num_key_heads", "ssm.group_count"},
      {"linear_num_value_heads", "ssm.time_step_rank"},
      {"gguf_inner_size", "ssm.inner_size"},
      {"gguf_recurrent_layers", "attention.recurrent_layers"},
  };
  for (const auto& [key, gguf_key] : keys)
    if (const Json* value = source.gguf_key(gguf_key)) config.set(key, *value);
  // transformers 5 writes it so for qwen3_moe.
  if (const Json* experts = config.find("num_local_experts"))
    set_default(config, "num_experts", *experts);
  if (!source.is_gguf() && traits.defaults != nullptr) {
    const Json defaults = traits.defaults();
    for (const auto& [key, value] : defaults.members()) set_default(config, key.c_str(), value);
  }
  return config;
}

Result<void> parse_delta(HybridConfig& c, const Json& config, const ModelSource& source,
                         const QwenTraits& traits) {
  DeltaConfig& d = c.delta;
  INVAR_TRY(d.num_key_heads, int_in_range(config, "linear_num_key_heads", -1, 1024));
  INVAR_TRY(d.num_value_heads, int_in_range(config, "linear_num_value_heads", -1, 1024));
  INVAR_TRY(d.key_dim, int_in_range(config, "linear_key_head_dim", -1, 1024));
  INVAR_TRY(d.conv_kernel, int_in_range(config, "linear_conv_kernel_dim", 4, 64));
  if (d.num_value_heads % d.num_key_heads != 0)
    return invalid_argument(
        "'linear_num_value_heads' %d is no multiple of 'linear_num_key_heads' %d",
        d.num_value_heads, d.num_key_heads);
  if (source.is_gguf()) {
    INVAR_TRY(const int inner_size, int_in_range(config, "gguf_inner_size", -1, 1 << 20));
    if (inner_size % d.num_value_heads != 0)
      return invalid_argument("'ssm.inner_size' %d is no multiple of 'ssm.time_step_rank' %d",
                              inner_size, d.num_value_heads);
    d.value_dim = inner_size / d.num_value_heads;
  } else {
    INVAR_TRY(d.value_dim, int_in_range(config, "linear_value_head_dim", -1, 1024));
  }
  d.order = source.is_gguf() && traits.tiled_in_gguf ? HeadOrder::kTiled : HeadOrder::kGrouped;
  d.decay_is_log = !source.is_gguf();
  INVAR_TRY(const auto gate, config.optional<std::string>("output_gate_type", "silu"));
  if (gate != "silu" && gate != "swish" && gate != "sigmoid")
    return unsupported("'output_gate_type' is '%s'; known: silu, swish, sigmoid", gate.c_str());
  d.sigmoid_gate = gate == "sigmoid";
  INVAR_TRY(const bool gated, config.optional<bool>("attn_output_gate", true));
  if (!gated) return unsupported("'attn_output_gate' is false: attention without gates");
  return {};
}

Result<void> parse_layer_kinds(HybridConfig& c, const Json& config) {
  const Json* flags = config.find("gguf_recurrent_layers");
  const Json* types = config.find("layer_types");
  const auto num_layers = static_cast<size_t>(c.num_layers);
  if (flags != nullptr && flags->is_bool()) {
    for (Layer& layer : c.layers) layer.is_recurrent = flags->as_bool();
  } else if (flags != nullptr) {
    if (!flags->is_array() || flags->items().size() < num_layers)
      return invalid_argument("'attention.recurrent_layers' must be an array of %d entries",
                              c.num_layers);
    for (size_t i = 0; i < num_layers; ++i)
      c.layers[i].is_recurrent = flags->items()[i] == Json(true);
  } else if (types != nullptr && !types->is_null()) {
    if (!types->is_array() || types->items().size() != num_layers)
      return invalid_argument("'layer_types' must be an array of %d entries", c.num_layers);
    for (size_t i = 0; i < num_layers; ++i) {
      const Json& type = types->items()[i];
      c.layers[i].is_recurrent = type == Json("linear_attention");
      if (!c.layers[i].is_recurrent && !(type == Json("full_attention")))
        return unsupported("'layer_types' entry %zu is %s; known: full_attention, linear_attention",
                           i, type.dump().c_str());
    }
  } else {
    INVAR_TRY(const int interval, int_in_range(config, "full_attention_interval", 4, 1024));
    for (size_t i = 0; i < num_layers; ++i)
      c.layers[i].is_recurrent = (i + 1) % static_cast<size_t>(interval) != 0;
  }
  return {};
}

Result<void> parse_experts(HybridConfig& c, const Json& config, const ModelSource& source,
                           const QwenTraits& traits) {
  MoeConfig& m = c.moe;
  INVAR_TRY(m.num_experts, int_in_range(config, "num_experts", -1, 4096));
  INVAR_TRY(m.num_experts_per_tok, int_in_range(config, "num_experts_per_tok", -1, 4096));
  INVAR_TRY(m.intermediate_size, int_in_range(config, "moe_intermediate_size", -1, 1 << 20));
  if (traits.has_shared_expert) {
    INVAR_TRY(m.shared_intermediate_size,
              int_in_range(config, "shared_expert_intermediate_size", -1, 1 << 20));
    m.shared_gate = true;
  }
  if (!traits.always_renormalizes) {
    INVAR_TRY(m.norm_topk_prob,
              config.optional<bool>("norm_topk_prob", traits.norm_topk_prob || source.is_gguf()));
  }
  INVAR_TRY_VOID(check_moe_config(m));

  INVAR_TRY(const int step, int_in_range(config, "decoder_sparse_step", 1, 1024));
  for (size_t i = 0; i < c.layers.size(); ++i) {
    // A GGUF file does not say which layers are dense.
    c.layers[i].is_sparse = source.is_gguf()
                                ? source.has("model.layers." + std::to_string(i) + ".mlp.gate")
                                : (i + 1) % static_cast<size_t>(step) == 0;
  }
  const Json* dense = config.find("mlp_only_layers");
  if (dense != nullptr && !dense->is_null()) {
    if (!dense->is_array()) return invalid_argument("'mlp_only_layers' must be an array");
    for (const Json& index : dense->items())
      if (index.is_int() && index.as_int() >= 0 && index.as_int() < c.num_layers)
        c.layers[static_cast<size_t>(index.as_int())].is_sparse = false;
  }
  return {};
}

// Partial rotary: the first rotary dims of a head turn, the others pass.
Result<void> parse_rope(HybridConfig& c, const Json& config, const ModelSource& source,
                        const QwenTraits& traits) {
  INVAR_TRY(Json parameters, rope_parameters(config, 0));
  INVAR_TRY(const double theta, parameters.optional<double>("rope_theta", 0));
  if (theta == 0)
    return invalid_argument("'rope_theta' is missing, expected in 'rope_parameters' or beside it");
  INVAR_TRY(const double part,
            parameters.optional<double>("partial_rotary_factor", traits.has_delta ? 0.25 : 1.0));
  int rotary_dim = static_cast<int>(c.head_dim * part);
  if (source.is_gguf()) {
    INVAR_TRY(rotary_dim, config.optional<int>("rope_dim", c.head_dim));
  }
  if (rotary_dim < 2 || rotary_dim > c.head_dim || rotary_dim % 2 != 0)
    return invalid_argument("rope over %d dims of a head of %d ('partial_rotary_factor' %g)",
                            rotary_dim, c.head_dim, part);
  parameters.set("partial_rotary_factor", 1);
  set_default(parameters, "max_position_embeddings", c.max_position_embeddings);
  INVAR_TRY(c.rope, rope_spec(parameters, rotary_dim));
  return {};
}

// Whether norm weights are w - 1. Converters that fold the 1 in also turn the convolution round; no
// other sign can be trusted (section 9).
bool is_raw(const HybridConfig& c, const ModelSource& source) {
  for (size_t i = 0; i < c.layers.size(); ++i) {
    if (!c.layers[i].is_recurrent) continue;
    const TensorInfo* conv =
        source.find("model.layers." + std::to_string(i) + ".linear_attn.conv1d");
    return conv != nullptr && !conv->shape.empty() && conv->shape.back() != 1;
  }
  return false;
}

// Gains average near 1, stored as w - 1 near 0.
bool averages_near_zero(const ModelSource& source, const char* module, int size) {
  const auto gains = source.vector(module, ".weight", size);
  if (!gains) return false;
  double sum = 0;
  for (const float gain : *gains) sum += gain;
  return sum / size < 0.5;
}

}  // namespace

Result<ModelPlan> plan_qwen(ModelSource& source, const LoadOptions& options,
                            const QwenTraits& traits) {
  Json config = config_of(source, traits);
  HybridConfig c;
  if (source.is_gguf()) {
    INVAR_TRY(const int block_count, int_in_range(config, "num_hidden_layers", -1, 1024));
    INVAR_TRY(const int num_layers, source.blocks_before_mtp(block_count));
    source.set_mtp(num_layers, options.mtp);
    config.set("num_hidden_layers", num_layers);
  } else {
    source.set_mtp(-1, options.mtp);
  }
  INVAR_TRY_VOID(parse_common_config(c, source, config));
  INVAR_TRY_VOID(expect_activation(config, "hidden_act", "silu"));
  INVAR_TRY(const bool bias, config.optional<bool>("attention_bias", false));
  if (bias) return unsupported("'attention_bias' is true: biases are not supported");
  INVAR_TRY(const bool sliding, config.optional<bool>("use_sliding_window", false));
  if (sliding) return unsupported("'use_sliding_window' is true: this variant is not supported");
  c.layers.resize(static_cast<size_t>(c.num_layers));
  if (traits.has_delta) {
    c.output_gate = true;
    INVAR_TRY_VOID(parse_delta(c, config, source, traits));
    INVAR_TRY_VOID(parse_layer_kinds(c, config));
    const bool raw = !source.is_gguf() && is_raw(c, source);
    c.norm_add = raw ? 1.f : 0.f;
    c.delta.fused_qkvz = false;
    for (size_t i = 0; i < c.layers.size(); ++i) {
      const std::string mixer = "model.layers." + std::to_string(i) + ".linear_attn.";
      if (!c.layers[i].is_recurrent) continue;
      c.delta.fused_qkvz = source.has(mixer + "in_proj_qkvz");
      c.delta.fused_ba = source.has(mixer + "in_proj_ba");
      break;
    }
  }
  const bool has_mtp = source.has("mtp.fc");
  // Converted files hold them either way.
  const bool raw_mtp = c.norm_add == 1 || (!source.is_gguf() && has_mtp &&
                                           averages_near_zero(source, "mtp.norm", c.hidden_size));
  c.mtp_norm_add = raw_mtp ? 1.f : 0.f;
  c.load_mtp = has_mtp && options.mtp;
  c.mtp_is_sparse = source.has("mtp.layers.0.mlp.gate");
  if (traits.has_experts) {
    INVAR_TRY_VOID(parse_experts(c, config, source, traits));
  }
  const bool any_dense = !std::ranges::all_of(c.layers, &Layer::is_sparse);
  if (any_dense || (c.load_mtp && !c.mtp_is_sparse)) {
    INVAR_TRY(c.intermediate_size, int_in_range(config, "intermediate_size", -1, 1 << 20));
  }
  INVAR_TRY_VOID(parse_rope(c, config, source, traits));
  return hybrid_plan(std::move(c), traits.family, has_mtp);
}

const GgufNames& qwen_moe_gguf_names() {
  static const GgufNames names = [] {
    GgufNames all = common_gguf_names();
    const GgufNames more = {
        {"mlp.gate", "ffn_gate_inp"},
        {"mlp.switch_mlp.gate_proj", "ffn_gate_exps"},
        {"mlp.switch_mlp.up_proj", "ffn_up_exps"},
        {"mlp.switch_mlp.down_proj", "ffn_down_exps"},
        {"mlp.experts.gate_up_proj", "ffn_gate_up_exps"},
        {"mlp.shared_expert_gate", "ffn_gate_inp_shexp"},
        {"mlp.shared_expert.gate_proj", "ffn_gate_shexp"},
        {"mlp.shared_expert.up_proj", "ffn_up_shexp"},
        {"mlp.shared_expert.down_proj", "ffn_down_shexp"},
    };
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return names;
}

const GgufNames& qwen_hybrid_gguf_names() {
  static const GgufNames names = [] {
    GgufNames all = qwen_moe_gguf_names();
    std::erase_if(all, [](const auto& pair) { return pair.first == "post_attention_layernorm"; });
    const GgufNames more = {
        {"post_attention_layernorm", "post_attention_norm"},
        {"linear_attn.in_proj_qkv", "attn_qkv"},
        {"linear_attn.in_proj_z", "attn_gate"},
        {"linear_attn.in_proj_b", "ssm_beta"},
        {"linear_attn.in_proj_a", "ssm_alpha"},
        {"linear_attn.in_proj_qkvz", "ssm_in"},
        {"linear_attn.in_proj_ba", "ssm_ba"},
        {"linear_attn.conv1d", "ssm_conv1d"},
        {"linear_attn.A_log", "ssm_a"},
        {"linear_attn.dt_bias", "ssm_dt.bias"},
        {"linear_attn.norm", "ssm_norm"},
        {"linear_attn.out_proj", "ssm_out"},
        {"mtp.fc", "nextn.eh_proj"},
        {"mtp.pre_fc_norm_embedding", "nextn.enorm"},
        {"mtp.pre_fc_norm_hidden", "nextn.hnorm"},
        {"mtp.norm", "nextn.shared_head_norm"},
        {"mtp.embed_tokens", "nextn.embed_tokens"},
        {"mtp.lm_head", "nextn.shared_head_head"},
    };
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }();
  return names;
}

}  // namespace invar
