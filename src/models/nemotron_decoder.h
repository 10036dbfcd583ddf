// The decoder of Nemotron-H: x = x + mixer(norm(x)) a layer, with mixers of four kinds
// (specs/nemotron_h.md). nemotron_h.cc turns config and metadata into a NemotronConfig.
#pragma once

#include <vector>

#include "models/common_config.h"
#include "models/family.h"
#include "models/moe_block.h"

namespace invar {

struct NemotronConfig : CommonConfig {
  enum class Kind { kMamba, kAttention, kMoe, kMlp };
  std::vector<Kind> kinds;         // [num_layers]
  const char* root = "backbone.";  // of names

  int mamba_num_heads = 0, mamba_head_dim = 0;
  int n_groups = 0, ssm_state_size = 0;
  int conv_kernel = 0;
  float dt_min = 0, dt_max = 0;  // dt_max 0: none

  MoeConfig moe;
  int intermediate_size = 0;  // of kMlp
  bool load_mtp = false;

  int64_t inner_size() const { return int64_t{mamba_num_heads} * mamba_head_dim; }
  int64_t group_size() const { return int64_t{n_groups} * ssm_state_size; }
  int64_t conv_size() const { return inner_size() + 2 * group_size(); }
};

ModelPlan nemotron_plan(NemotronConfig config, bool has_mtp);

}  // namespace invar
