// Qwen3 dense: RMSNorm on each head of q and k before rope, no biases (specs/dense.md section 4).
#include "models/dense_decoder.h"
#include "models/rope_config.h"

namespace invar {
namespace {

Result<ModelPlan> plan(ModelSource& source, const LoadOptions&) {
  const Json& config = source.config();
  INVAR_TRY(auto c, parse_dense_config(source, config));
  INVAR_TRY_VOID(expect_activation(config, "hidden_act", "silu"));
  INVAR_TRY(const bool bias, config.optional<bool>("attention_bias", false));
  if (bias) return unsupported("'attention_bias' is true: this qwen3 variant is not supported");
  INVAR_TRY(const bool sliding, config.optional<bool>("use_sliding_window", false));
  const Json* types = config.find("layer_types");
  if (sliding && (types == nullptr || types->is_null()))
    return unsupported("'use_sliding_window' is true without 'layer_types'");
  c.qk_norm = true;
  INVAR_TRY(const auto parameters, rope_parameters(config, 1e6));
  INVAR_TRY(auto rope, rope_spec(parameters, c.head_dim));
  c.ropes = {std::move(rope)};
  return dense_plan(std::move(c));
}

}  // namespace

extern const ModelFamily kQwen3Family = {"qwen3",   {"Qwen3ForCausalLM"}, {"qwen3"},
                                         {"qwen3"}, &common_gguf_names(), plan};

}  // namespace invar
