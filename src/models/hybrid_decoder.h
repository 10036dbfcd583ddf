// The decoder of the Qwen3-Next line (specs/qwen3_5.md): each layer mixes tokens by attention or by
// a Gated DeltaNet, then runs a dense or a sparse feed-forward block. qwen3_moe is the same without
// DeltaNet and gates. A family file turns its config into a HybridConfig.
#pragma once

#include <vector>

#include "models/common_config.h"
#include "models/family.h"
#include "models/moe_block.h"

namespace invar {

struct DeltaConfig {
  int num_key_heads = 0, num_value_heads = 0;
  int key_dim = 0, value_dim = 0;  // of a head
  int conv_kernel = 0;
  HeadOrder order = HeadOrder::kGrouped;
  bool sigmoid_gate = false;  // the gate of the output is the sigmoid, else SiLU
  bool decay_is_log = true;   // "A_log" holds log(-decay); GGUF files hold the decay itself
  // q, k, v, z (and b, a) of a key head stand together in one matrix: qwen3_next.
  bool fused_qkvz = false, fused_ba = false;

  int64_t key_size() const { return int64_t{num_key_heads} * key_dim; }
  int64_t value_size() const { return int64_t{num_value_heads} * value_dim; }
  int64_t conv_size() const { return 2 * key_size() + value_size(); }
};

struct HybridConfig : CommonConfig {
  bool output_gate = false;  // q_proj holds, a head, its queries and then its gate
  float norm_add = 0;        // 1 where norm weights are stored as w - 1
  float mtp_norm_add = 0;    // the same for the MTP head's
  RopeSpec rope;
  DeltaConfig delta;
  MoeConfig moe;
  int intermediate_size = 0;  // of dense blocks

  struct Layer {
    bool is_recurrent = false;
    bool is_sparse = false;
  };
  std::vector<Layer> layers;  // [num_layers]
  bool load_mtp = false;
  bool mtp_is_sparse = false;
};

ModelPlan hybrid_plan(HybridConfig config, std::string_view family, bool has_mtp);

}  // namespace invar
