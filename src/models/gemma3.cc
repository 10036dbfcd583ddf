// Gemma 3 text: norms before and after attention and MLP with weights stored as w - 1, GELU gate,
// scaled embedding, five sliding layers to one global with a rope base each (specs/dense.md
// section 5).
#include <cmath>

#include "models/dense_decoder.h"
#include "models/rope_config.h"

namespace invar {
namespace {

const GgufNames& gguf_names() {
  // ffn_norm is the norm before the MLP; what Hugging Face calls post_attention_layernorm is
  // applied to the output of attention here.
  static const GgufNames names = [] {
    GgufNames all = common_gguf_names();
    std::erase_if(all, [](const auto& pair) { return pair.first == "post_attention_layernorm"; });
    all.emplace_back("post_attention_layernorm", "post_attention_norm");
    all.emplace_back("pre_feedforward_layernorm", "ffn_norm");
    all.emplace_back("post_feedforward_layernorm", "post_ffw_norm");
    return all;
  }();
  return names;
}

// What transformers' Gemma3TextConfig assumes where config.json is silent. The text_config of the
// published 4B, 12B and 27B models leaves most of these out. The embedding says how many rows it
// has; its default there is one model's.
Json with_defaults(const ModelSource& source) {
  Json config = source.config();
  set_default(config, "num_attention_heads", 8);
  set_default(config, "num_key_value_heads", 4);
  set_default(config, "head_dim", 256);
  set_default(config, "rms_norm_eps", 1e-6);
  set_default(config, "max_position_embeddings", 131072);
  set_default(config, "query_pre_attn_scalar", 256);
  set_default(config, "sliding_window", 4096);
  if (const TensorInfo* table = source.find("model.embed_tokens"))
    set_default(config, "vocab_size", table->matrix.num_rows);
  return config;
}

// What a GGUF file leaves out: the period of 6 and the local theta are constants of the family;
// newer files carry them.
Result<void> apply_gguf_layers(DenseConfig& c, const ModelSource& source) {
  const Json& metadata = source.checkpoint().metadata;
  INVAR_TRY(const int64_t window, source.config().optional<int64_t>("sliding_window", 0));
  const Json* pattern = metadata.find("gemma3.attention.sliding_window_pattern");
  if (window == 0) return {};  // no window at all: every layer is global
  if (pattern != nullptr && pattern->is_array()) {
    if (pattern->items().size() != c.layers.size())
      return invalid_argument(
          "'gemma3.attention.sliding_window_pattern' has %zu entries, expected %d",
          pattern->items().size(), c.num_layers);
    for (size_t i = 0; i < c.layers.size(); ++i)
      if (pattern->items()[i] == Json(true)) c.layers[i].sliding_window = window;
    return {};
  }
  INVAR_TRY(const int period, metadata.optional<int>("gemma3.attention.sliding_window_pattern", 6));
  if (period < 1)
    return invalid_argument("'gemma3.attention.sliding_window_pattern' is %d, expected 1 or more",
                            period);
  for (size_t i = 0; i < c.layers.size(); ++i)
    if ((i + 1) % static_cast<size_t>(period) != 0) c.layers[i].sliding_window = window;
  return {};
}

Result<void> apply_config_layers(DenseConfig& c, const Json& config) {
  if (const Json* types = config.find("layer_types"); types != nullptr && types->is_array())
    return {};
  INVAR_TRY(int period, config.optional<int>("sliding_window_pattern", 0));
  if (period == 0) {
    INVAR_TRY(period, config.optional<int>("_sliding_window_pattern", 6));
  }
  INVAR_TRY(const int64_t window, config.required<int64_t>("sliding_window"));
  if (period < 1 || window < 1)
    return invalid_argument("'sliding_window_pattern' %d or 'sliding_window' %ld is below 1",
                            period, long{window});
  for (size_t i = 0; i < c.layers.size(); ++i)
    if ((i + 1) % static_cast<size_t>(period) != 0) c.layers[i].sliding_window = window;
  return {};
}

Result<void> apply_ropes(DenseConfig& c, const ModelSource& source, const Json& config) {
  Json global, local = Json::object();
  const Json* newer = config.find("rope_parameters");
  if (newer != nullptr && newer->find("full_attention") != nullptr) {
    global = *newer->find("full_attention");
    const Json* sliding = newer->find("sliding_attention");
    if (sliding == nullptr)
      return invalid_argument("'rope_parameters' has full_attention but no sliding_attention");
    local = *sliding;
  } else {
    INVAR_TRY(global, rope_parameters(config, 1e6));
    double local_theta = 10000.0;
    if (source.is_gguf()) {
      INVAR_TRY(local_theta, source.checkpoint().metadata.optional<double>(
                                 "gemma3.rope.freq_base_swa", 10000.0));
    } else {
      INVAR_TRY(local_theta, config.optional<double>("rope_local_base_freq", 10000.0));
    }
    local.set("rope_theta", local_theta);
  }
  INVAR_TRY(auto global_rope, rope_spec(global, c.head_dim));
  INVAR_TRY(auto local_rope, rope_spec(local, c.head_dim));
  c.ropes = {std::move(global_rope), std::move(local_rope)};
  for (DenseConfig::Layer& layer : c.layers) layer.rope = layer.sliding_window > 0 ? 1 : 0;
  return {};
}

Result<ModelPlan> plan(ModelSource& source, const LoadOptions&) {
  const Json config = source.is_gguf() ? source.config() : with_defaults(source);
  INVAR_TRY(auto c, parse_dense_config(source, config));
  INVAR_TRY_VOID(expect_activation(config, "hidden_activation", "gelu_pytorch_tanh"));
  c.activation = Activation::kGeluTanh;
  c.qk_norm = true;
  c.norm_of_outputs = true;
  c.norm_add = source.is_gguf() ? 0.f : 1.f;  // converters fold the 1 in
  c.tied = true;

  // transformers rounds the factor to the type of the weights; GGUF readers use the fp32 root.
  c.embed_scale = static_cast<float>(std::sqrt(static_cast<double>(c.hidden_size)));
  const TensorInfo* norm = source.find("model.norm");
  if (!source.is_gguf() && norm != nullptr && norm->matrix.format == WeightFormat::kBF16) {
    uint32_t bits;
    __builtin_memcpy(&bits, &c.embed_scale, 4);
    bits += 0x7FFF + ((bits >> 16) & 1);  // round to nearest even
    c.embed_scale = bf16_to_f32(static_cast<uint16_t>(bits >> 16));
  } else if (!source.is_gguf() && norm != nullptr && norm->matrix.format == WeightFormat::kF16) {
    c.embed_scale = f16_to_f32(f32_to_f16(c.embed_scale));
  }

  // Not stored in GGUF: head_dim, except for the 27B model (62 layers).
  double scalar = c.head_dim;
  if (source.is_gguf()) {
    if (c.num_layers == 62) scalar = static_cast<double>(c.hidden_size) / c.num_heads;
    INVAR_TRY_VOID(apply_gguf_layers(c, source));
  } else {
    INVAR_TRY(scalar, config.required<double>("query_pre_attn_scalar"));
    INVAR_TRY_VOID(apply_config_layers(c, config));
  }
  if (!(scalar > 0))
    return invalid_argument("'query_pre_attn_scalar' is %g, expected a positive number", scalar);
  c.attention_scale = static_cast<float>(1.0 / std::sqrt(scalar));
  INVAR_TRY_VOID(apply_ropes(c, source, config));
  return dense_plan(std::move(c));
}

}  // namespace

extern const ModelFamily kGemma3Family = {"gemma3",
                                          {"Gemma3ForCausalLM", "Gemma3ForConditionalGeneration"},
                                          {"gemma3_text", "gemma3"},
                                          {"gemma3"},
                                          &gguf_names(),
                                          plan};

}  // namespace invar
