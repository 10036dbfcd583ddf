// What the configs of qwen3_moe, qwen3_next, qwen3_5 and qwen3_5_moe share. A family file says
// which of it is there and what is assumed where a config is silent.
#pragma once

#include <string_view>

#include "models/hybrid_decoder.h"

namespace invar {

struct QwenTraits {
  std::string_view family;
  bool has_delta = false;  // DeltaNet layers, gated attention, rope over a part of a head
  bool has_experts = false;
  bool has_shared_expert = false;
  bool tiled_in_gguf = false;        // value heads stand in another order there
  bool always_renormalizes = false;  // norm_topk_prob is no key of this family
  bool norm_topk_prob = true;        // where the config is silent
  Json (*defaults)() = nullptr;      // of other keys
};

Result<ModelPlan> plan_qwen(ModelSource& source, const LoadOptions& options,
                            const QwenTraits& traits);

// Names of GGUF tensors: of all of them, and of those with DeltaNet layers.
const GgufNames& qwen_moe_gguf_names();
const GgufNames& qwen_hybrid_gguf_names();

}  // namespace invar
