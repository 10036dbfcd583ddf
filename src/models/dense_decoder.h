// The decoder that the dense families share: attention and a gated MLP a layer, with the switches
// in which llama, qwen2, qwen3 and gemma3 differ. A family file turns its config into a
// DenseConfig.
#pragma once

#include <vector>

#include "models/common_config.h"
#include "models/family.h"

namespace invar {

struct DenseConfig : CommonConfig {
  int intermediate_size = 0;
  Activation activation = Activation::kSilu;
  bool qkv_bias = false;  // q, k, v have biases
  bool o_bias = false;
  bool qk_norm = false;          // RMSNorm on each head of q and k, before rope
  bool norm_of_outputs = false;  // gemma: norms on the outputs of attention and MLP as well
  float norm_add = 0;            // 1 where norm weights are stored as w - 1
  float embed_scale = 1;
  float attention_scale = 0;
  float attention_softcap = 0;  // 0: none
  float logit_softcap = 0;

  struct Layer {
    int64_t sliding_window = 0;  // 0: sees everything
    size_t rope = 0;             // index into ropes
  };
  std::vector<Layer> layers;  // [num_layers]
  std::vector<RopeSpec> ropes;

  int interleaved_head_dim = 0;  // GGUF arch llama: see MatrixView
};

// The keys that every dense family has, with ranges checked; also layer_types and the sliding
// window of families that use them (`layers`). Families adjust the rest. `config`: source.config(),
// with the family's defaults filled in where it has any.
Result<DenseConfig> parse_dense_config(const ModelSource& source, const Json& config);

ModelPlan dense_plan(DenseConfig config);

}  // namespace invar
