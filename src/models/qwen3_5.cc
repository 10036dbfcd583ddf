// Qwen3.5, 3.6 and 3.8, dense and with experts: three layers of Gated DeltaNet to one of gated
// attention (specs/qwen3_5.md). Checkpoints may be multimodal; the text model is what runs.
#include "models/qwen_line.h"

namespace invar {
namespace {

// What transformers assumes where a config is silent, as far as the published sizes agree.
Json defaults() {
  return *Json::parse(
      R"({"head_dim": 256, "rms_norm_eps": 1e-6, "max_position_embeddings": 32768,
          "linear_num_key_heads": 16, "linear_num_value_heads": 32, "linear_key_head_dim": 128,
          "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "num_experts": 256,
          "num_experts_per_tok": 8, "moe_intermediate_size": 512,
          "shared_expert_intermediate_size": 512})");
}

QwenTraits traits(bool has_experts) {
  QwenTraits traits;
  traits.family = has_experts ? "qwen3_5_moe" : "qwen3_5";
  traits.has_delta = true;
  traits.has_experts = has_experts;
  traits.has_shared_expert = has_experts;
  traits.tiled_in_gguf = true;
  traits.always_renormalizes = true;
  traits.defaults = defaults;
  return traits;
}

Result<ModelPlan> plan_dense(ModelSource& source, const LoadOptions& options) {
  return plan_qwen(source, options, traits(false));
}

Result<ModelPlan> plan_moe(ModelSource& source, const LoadOptions& options) {
  return plan_qwen(source, options, traits(true));
}

}  // namespace

extern const ModelFamily kQwen35Family = {"qwen3_5",
                                          {"Qwen3_5ForConditionalGeneration", "Qwen3_5ForCausalLM"},
                                          {"qwen3_5", "qwen3_5_text"},
                                          {"qwen35"},
                                          &qwen_hybrid_gguf_names(),
                                          plan_dense};

extern const ModelFamily kQwen35MoeFamily = {
    "qwen3_5_moe",
    {"Qwen3_5MoeForConditionalGeneration", "Qwen3_5MoeForCausalLM"},
    {"qwen3_5_moe", "qwen3_5_moe_text"},
    {"qwen35moe"},
    &qwen_hybrid_gguf_names(),
    plan_moe};

}  // namespace invar
