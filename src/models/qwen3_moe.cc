// Qwen3 MoE (30B-A3B, 235B-A22B, Coder): qwen3's attention, sparse experts in place of the MLP.
#include "models/qwen_line.h"

namespace invar {
namespace {

Result<ModelPlan> plan(ModelSource& source, const LoadOptions& options) {
  QwenTraits traits;
  traits.family = "qwen3_moe";
  traits.has_experts = true;
  traits.norm_topk_prob = false;
  return plan_qwen(source, options, traits);
}

}  // namespace

extern const ModelFamily kQwen3MoeFamily = {"qwen3_moe",  {"Qwen3MoeForCausalLM"}, {"qwen3_moe"},
                                            {"qwen3moe"}, &qwen_moe_gguf_names(),  plan};

}  // namespace invar
