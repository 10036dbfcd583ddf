// Qwen3-Next and Qwen3-Coder-Next: the older sibling of qwen3_5_moe, with q, k, v, z and b, a of a
// DeltaNet layer in two matrices (specs/qwen3_5.md section 12).
#include "models/qwen_line.h"

namespace invar {
namespace {

// What transformers assumes where a config is silent.
Json defaults() {
  return *Json::parse(
      R"({"head_dim": 256, "rms_norm_eps": 1e-6, "max_position_embeddings": 32768,
          "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
          "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 512,
          "num_experts_per_tok": 10, "moe_intermediate_size": 512,
          "shared_expert_intermediate_size": 512})");
}

Result<ModelPlan> plan(ModelSource& source, const LoadOptions& options) {
  QwenTraits traits;
  traits.family = "qwen3_next";
  traits.has_delta = true;
  traits.has_experts = true;
  traits.has_shared_expert = true;
  traits.defaults = defaults;
  return plan_qwen(source, options, traits);
}

}  // namespace

extern const ModelFamily kQwen3NextFamily = {
    "qwen3_next",  {"Qwen3NextForCausalLM"},  {"qwen3_next"},
    {"qwen3next"}, &qwen_hybrid_gguf_names(), plan};

}  // namespace invar
