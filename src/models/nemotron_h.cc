// Nemotron-H (specs/nemotron_h.md): each layer is one mixer behind one norm - Mamba2, attention
// without positions, experts, or a dense block of two matrices. Keys and names here, the layers in
// nemotron_decoder.cc.
#include <algorithm>
#include <cmath>
#include <limits>

#include "models/nemotron_decoder.h"

namespace invar {
namespace {

using Kind = NemotronConfig::Kind;

const GgufNames& gguf_names() {
  static const GgufNames names = {
      {"backbone.embeddings", "token_embd"},
      {"backbone.norm_f", "output_norm"},
      {"lm_head", "output"},
      {"norm", "attn_norm"},
      {"mixer.in_proj", "ssm_in"},
      {"mixer.conv1d", "ssm_conv1d"},
      {"mixer.A_log", "ssm_a"},
      {"mixer.D", "ssm_d"},
      {"mixer.dt_bias", "ssm_dt.bias"},
      {"mixer.norm", "ssm_norm"},
      {"mixer.out_proj", "ssm_out"},
      {"mixer.q_proj", "attn_q"},
      {"mixer.k_proj", "attn_k"},
      {"mixer.v_proj", "attn_v"},
      {"mixer.o_proj", "attn_output"},
      {"mixer.up_proj", "ffn_up"},
      {"mixer.down_proj", "ffn_down"},
      {"mixer.gate", "ffn_gate_inp"},
      {"mixer.gate.e_score_correction_bias", "exp_probs_b.bias"},
      {"mixer.switch_mlp.fc1", "ffn_up_exps"},
      {"mixer.switch_mlp.fc2", "ffn_down_exps"},
      {"mixer.shared_experts.up_proj", "ffn_up_shexp"},
      {"mixer.shared_experts.down_proj", "ffn_down_shexp"},
      {"mixer.fc1_latent_proj", "ffn_latent_down"},
      {"mixer.fc2_latent_proj", "ffn_latent_up"},
      {"mtp.layers.0.eh_proj", "nextn.eh_proj"},
      {"mtp.layers.0.enorm", "nextn.enorm"},
      {"mtp.layers.0.hnorm", "nextn.hnorm"},
      {"mtp.layers.0.norm", "attn_norm"},
      {"mtp.layers.1.norm", "post_attention_norm"},
      {"mtp.layers.1.final_layernorm", "nextn.shared_head_norm"},
  };
  return names;
}

// Hugging Face's keys, whatever the container.
Json config_of(const ModelSource& source) {
  Json config = source.config();
  const std::pair<const char*, const char*> keys[] = {
      {"layer_norm_epsilon", "attention.layer_norm_epsilon"},
      {"conv_kernel", "ssm.conv_kernel"},
      {"ssm_state_size", "ssm.state_size"},
      {"n_groups", "ssm.group_count"},
      {"mamba_num_heads", "ssm.time_step_rank"},
      {"gguf_inner_size", "ssm.inner_size"},
      {"n_routed_experts", "expert_count"},
      {"num_experts_per_tok", "expert_used_count"},
      {"moe_intermediate_size", "expert_feed_forward_length"},
      {"moe_shared_expert_intermediate_size", "expert_shared_feed_forward_length"},
      {"n_shared_experts", "expert_shared_count"},
      {"norm_topk_prob", "expert_weights_norm"},
      {"routed_scaling_factor", "expert_weights_scale"},
      {"n_group", "expert_group_count"},
      {"topk_group", "expert_group_used_count"},
      {"moe_latent_size", "moe_latent_size"},
  };
  for (const auto& [key, gguf_key] : keys)
    if (const Json* value = source.gguf_key(gguf_key)) config.set(key, *value);
  // Two spellings; GGUF files have the rms key only where a config has it too.
  if (const Json* eps = config.find("layer_norm_epsilon"))
    set_default(config, "rms_norm_eps", *eps);
  if (const Json* eps = config.find("norm_eps")) set_default(config, "rms_norm_eps", *eps);
  if (!source.is_gguf()) {
    // What transformers assumes where a config is silent.
    set_default(config, "rms_norm_eps", 1e-5);
    set_default(config, "max_position_embeddings", 4096);
    const std::pair<const char*, const char*> older[] = {{"mamba_n_groups", "n_groups"},
                                                         {"mamba_d_conv", "conv_kernel"},
                                                         {"mamba_conv_bias", "use_conv_bias"},
                                                         {"mamba_dt_limit", "time_step_limit"}};
    for (const auto& [from, to] : older)
      if (const Json* value = config.find(from)) set_default(config, to, *value);
  }
  return config;
}

// Entry `block` of a GGUF key with a value a layer, or of one for all; 0 where it is absent.
int64_t at_block(const ModelSource& source, const char* key, size_t block) {
  const Json* value = source.gguf_key(key);
  if (value != nullptr && value->is_array())
    value = block < value->items().size() ? &value->items()[block] : nullptr;
  return value != nullptr && value->is_int() ? value->as_int() : 0;
}

// The largest of a key's values: what the layers that have the thing share. An error where they do
// not.
Result<int64_t> shared_value(const ModelSource& source, const char* key) {
  const Json* value = source.gguf_key(key);
  if (value == nullptr) return 0;
  if (!value->is_array()) return value->is_int() ? value->as_int() : 0;
  int64_t shared = 0;
  for (const Json& item : value->items()) {
    const int64_t one = item.is_int() ? item.as_int() : 0;
    if (one == 0) continue;
    if (shared != 0 && one != shared)
      return unsupported("'%s' is %ld in one layer and %ld in another; expected one size", key,
                         long{shared}, long{one});
    shared = one;
  }
  return shared;
}

Result<void> read_gguf_layers(NemotronConfig& c, Json& config, ModelSource& source,
                              const LoadOptions& options) {
  INVAR_TRY(const int block_count, int_in_range(config, "num_hidden_layers", -1, 1024));
  INVAR_TRY(const int num_layers, source.blocks_before_mtp(block_count));
  source.set_mtp(num_layers, options.mtp);
  config.set("num_hidden_layers", num_layers);
  INVAR_TRY(const int64_t kv_heads, shared_value(source, "attention.head_count_kv"));
  INVAR_TRY(const int64_t heads, shared_value(source, "attention.head_count"));
  INVAR_TRY(const int64_t dense_size, shared_value(source, "feed_forward_length"));
  config.set("num_attention_heads", heads);
  config.set("num_key_value_heads", kv_heads > 0 ? kv_heads : heads);
  config.set("intermediate_size", dense_size);
  for (size_t i = 0; i < static_cast<size_t>(num_layers); ++i) {
    const bool has_block = at_block(source, "feed_forward_length", i) != 0;
    const bool has_router = source.has("backbone.layers." + std::to_string(i) + ".mixer.gate");
    if (has_block)
      c.kinds.push_back(has_router ? Kind::kMoe : Kind::kMlp);
    else
      c.kinds.push_back(at_block(source, "attention.head_count_kv", i) != 0 ? Kind::kAttention
                                                                            : Kind::kMamba);
  }
  return {};
}

// A list of names, or the older string with a character a layer; of two the list counts.
Result<std::vector<Kind>> parse_kinds(const Json& config, const char* list_key,
                                      const char* pattern_key) {
  std::vector<Kind> kinds;
  const Json* list = config.find(list_key);
  if (list != nullptr && list->is_array()) {
    const std::pair<const char*, Kind> names[] = {{"linear_attention", Kind::kMamba},
                                                  {"mamba", Kind::kMamba},
                                                  {"full_attention", Kind::kAttention},
                                                  {"attention", Kind::kAttention},
                                                  {"moe", Kind::kMoe},
                                                  {"mlp", Kind::kMlp}};
    for (const Json& item : list->items()) {
      const size_t before = kinds.size();
      for (const auto& [name, kind] : names)
        if (item == Json(name)) kinds.push_back(kind);
      if (kinds.size() == before)
        return unsupported(
            "'%s' entry %zu is %s; known: linear_attention, full_attention, moe, mlp", list_key,
            before, item.dump().c_str());
    }
    return kinds;
  }
  INVAR_TRY(const auto pattern, config.optional<std::string>(pattern_key, ""));
  for (const char c : pattern) {
    if (c == 'M')
      kinds.push_back(Kind::kMamba);
    else if (c == '*')
      kinds.push_back(Kind::kAttention);
    else if (c == 'E')
      kinds.push_back(Kind::kMoe);
    else if (c == '-')
      kinds.push_back(Kind::kMlp);
    else
      return unsupported("'%s' has '%c'; known: M * E -", pattern_key, c);
  }
  return kinds;
}

Result<void> read_config_layers(NemotronConfig& c, Json& config) {
  const char* list_key =
      config.find("layers_block_type") != nullptr ? "layers_block_type" : "layer_types";
  INVAR_TRY(c.kinds, parse_kinds(config, list_key, "hybrid_override_pattern"));
  if (c.kinds.empty() || c.kinds.size() > 1024)
    return invalid_argument(
        "'layers_block_type' or 'hybrid_override_pattern' must name 1 to 1024 layers");
  config.set("num_hidden_layers", static_cast<int>(c.kinds.size()));
  return {};
}

// [low, high]; high may be infinite, which JSON cannot say: transformers 5 writes an object, older
// files a word that is no JSON.
Result<void> parse_time_step_limit(NemotronConfig& c, const Json& config) {
  const Json* limit = config.find("time_step_limit");
  if (limit == nullptr || limit->is_null()) return {};
  const double infinite = std::numeric_limits<double>::infinity();
  const auto number = [&](const Json& value) {
    if (value.is_number()) return value.as_double();
    if (value.is_null()) return infinite;  // what a bare Infinity was read as
    const Json* text = value.find("__float__");
    if (text != nullptr && *text == Json("Infinity")) return infinite;
    return -1.0;
  };
  if (!limit->is_array() || limit->items().size() != 2)
    return invalid_argument("'time_step_limit' must be an array of two numbers");
  const double low = number(limit->items()[0]), high = number(limit->items()[1]);
  if (!(low >= 0 && high > low && std::isfinite(low)))
    return invalid_argument("'time_step_limit' is %s, expected two numbers, the second larger",
                            limit->dump().c_str());
  c.dt_min = static_cast<float>(low);
  c.dt_max = std::isfinite(high) ? static_cast<float>(high) : 0;  // 0: no limit
  return {};
}

Result<void> parse_mamba(NemotronConfig& c, const Json& config, const ModelSource& source) {
  INVAR_TRY(c.mamba_num_heads, int_in_range(config, "mamba_num_heads", -1, 4096));
  INVAR_TRY(c.n_groups, int_in_range(config, "n_groups", 8, 4096));
  INVAR_TRY(c.ssm_state_size, int_in_range(config, "ssm_state_size", 128, 4096));
  INVAR_TRY(c.conv_kernel, int_in_range(config, "conv_kernel", 4, 64));
  if (source.is_gguf()) {
    INVAR_TRY(const int inner_size, int_in_range(config, "gguf_inner_size", -1, 1 << 20));
    if (inner_size % c.mamba_num_heads != 0)
      return invalid_argument("'ssm.inner_size' %d is no multiple of 'ssm.time_step_rank' %d",
                              inner_size, c.mamba_num_heads);
    c.mamba_head_dim = inner_size / c.mamba_num_heads;
  } else {
    INVAR_TRY(c.mamba_head_dim, int_in_range(config, "mamba_head_dim", 64, 4096));
  }
  if (c.mamba_num_heads % c.n_groups != 0)
    return invalid_argument("'mamba_num_heads' %d is no multiple of 'n_groups' %d",
                            c.mamba_num_heads, c.n_groups);
  INVAR_TRY_VOID(expect_activation(config, "mamba_hidden_act", "silu"));
  // time_step_min, _max and _floor are for training alone.
  return parse_time_step_limit(c, config);
}

Result<void> parse_experts(NemotronConfig& c, const Json& config) {
  MoeConfig& m = c.moe;
  INVAR_TRY(m.num_experts, int_in_range(config, "n_routed_experts", -1, 4096));
  INVAR_TRY(m.num_experts_per_tok, int_in_range(config, "num_experts_per_tok", -1, 4096));
  INVAR_TRY(m.intermediate_size, int_in_range(config, "moe_intermediate_size", -1, 1 << 20));
  INVAR_TRY(const int num_shared, config.optional<int>("n_shared_experts", 1));
  if (num_shared != 0) {
    INVAR_TRY(m.shared_intermediate_size,
              int_in_range(config, "moe_shared_expert_intermediate_size", -1, 1 << 20));
  }
  const Json* latent = config.find("moe_latent_size");
  if (latent != nullptr && !latent->is_null()) {
    INVAR_TRY(m.latent_size, int_in_range(config, "moe_latent_size", -1, 1 << 17));
  }
  INVAR_TRY(m.n_group, int_in_range(config, "n_group", 1, 4096));
  INVAR_TRY(m.topk_group, int_in_range(config, "topk_group", 1, 4096));
  INVAR_TRY(m.norm_topk_prob, config.optional<bool>("norm_topk_prob", true));
  INVAR_TRY(const double factor, config.optional<double>("routed_scaling_factor", 1));
  m.routed_scaling_factor = static_cast<float>(factor);
  m.score = RouterScore::kSigmoid;
  m.correction_bias = true;
  m.norm_eps = 1e-20f;
  m.activation = Activation::kRelu2;
  m.shared_name = "shared_experts";
  m.shared_bias = true;
  return check_moe_config(m);
}

Result<ModelPlan> plan(ModelSource& source, const LoadOptions& options) {
  Json config = config_of(source);
  NemotronConfig c;
  if (source.is_gguf()) {
    INVAR_TRY_VOID(read_gguf_layers(c, config, source, options));
  } else {
    source.set_mtp(-1, options.mtp);
    INVAR_TRY_VOID(read_config_layers(c, config));
  }
  // Adapters and some exports use transformers' own names.
  if (!source.is_gguf() && !source.has("backbone.embeddings")) c.root = "model.";
  INVAR_TRY_VOID(parse_common_config(c, source, config));
  INVAR_TRY_VOID(expect_activation(config, "mlp_hidden_act", "relu2"));
  INVAR_TRY(const bool bias, config.optional<bool>("attention_bias", false));
  if (bias) return unsupported("'attention_bias' is true: biases in attention are not supported");
  const auto has = [&](Kind kind) { return std::ranges::find(c.kinds, kind) != c.kinds.end(); };
  const bool has_mtp = source.has("mtp.layers.0.eh_proj");
  c.load_mtp = has_mtp && options.mtp;
  if (c.load_mtp) {
    INVAR_TRY(auto kinds,
              parse_kinds(config, "mtp_layers_block_type", "mtp_hybrid_override_pattern"));
    if (!kinds.empty() && kinds != std::vector<Kind>{Kind::kAttention, Kind::kMoe})
      return unsupported("'mtp_layers_block_type' is not attention and experts; load without mtp");
  }
  if (has(Kind::kMamba)) {
    INVAR_TRY_VOID(parse_mamba(c, config, source));
  }
  if (has(Kind::kMoe) || c.load_mtp) {
    INVAR_TRY_VOID(parse_experts(c, config));
  }
  if (has(Kind::kMlp)) {
    INVAR_TRY(c.intermediate_size, int_in_range(config, "intermediate_size", -1, 1 << 20));
  }
  return nemotron_plan(std::move(c), has_mtp);
}

}  // namespace

extern const ModelFamily kNemotronHFamily = {"nemotron_h",   {"NemotronHForCausalLM"},
                                             {"nemotron_h"}, {"nemotron_h", "nemotron_h_moe"},
                                             &gguf_names(),  plan};

}  // namespace invar
