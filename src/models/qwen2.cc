// Qwen2, Qwen2.5 and Qwen2.5-Coder: llama with biases on q, k and v (specs/dense.md section 3).
#include <algorithm>

#include "models/dense_decoder.h"
#include "models/rope_config.h"

namespace invar {
namespace {

Result<ModelPlan> plan(ModelSource& source, const LoadOptions&) {
  const Json& config = source.config();
  INVAR_TRY(auto c, parse_dense_config(source, config));
  INVAR_TRY_VOID(expect_activation(config, "hidden_act", "silu"));
  c.qkv_bias = true;
  // Older configs slide from max_window_layers on, and only with use_sliding_window (no published
  // checkpoint does); newer ones say it in layer_types, which parse_dense_config read.
  INVAR_TRY(const bool sliding, config.optional<bool>("use_sliding_window", false));
  const Json* types = config.find("layer_types");
  if (sliding && (types == nullptr || types->is_null())) {
    INVAR_TRY(const int first, config.optional<int>("max_window_layers", 28));
    INVAR_TRY(const int64_t window, config.required<int64_t>("sliding_window"));
    if (window < 1)
      return invalid_argument("'use_sliding_window' is true, but 'sliding_window' is %ld",
                              long{window});
    for (size_t i = static_cast<size_t>(std::max(first, 0)); i < c.layers.size(); ++i)
      c.layers[i].sliding_window = window;
  }
  INVAR_TRY(const auto parameters, rope_parameters(config, 1e6));
  INVAR_TRY(auto rope, rope_spec(parameters, c.head_dim));
  c.ropes = {std::move(rope)};
  return dense_plan(std::move(c));
}

}  // namespace

extern const ModelFamily kQwen2Family = {"qwen2",   {"Qwen2ForCausalLM"}, {"qwen2"},
                                         {"qwen2"}, &common_gguf_names(), plan};

}  // namespace invar
