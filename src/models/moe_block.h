// A sparse mixture of experts as a layer's feed-forward block: a router, experts of which a token
// meets a few, and often one that every token meets (specs/qwen3_5.md section 8,
// specs/nemotron_h.md section 5). Families say what theirs looks like; the arithmetic is
// ops/moe.h's.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "models/model_source.h"
#include "models/packer.h"
#include "ops/moe.h"

namespace invar {

struct MoeConfig {
  int num_experts = 0;
  int num_experts_per_tok = 0;
  int intermediate_size = 0;
  int shared_intermediate_size = 0;  // 0: no shared expert
  int latent_size = 0;               // > 0: the experts see a projection of this size
  RouterScore score = RouterScore::kSoftmax;
  bool correction_bias = false;
  int n_group = 1, topk_group = 1;
  bool norm_topk_prob = true;
  float norm_eps = 0;
  float routed_scaling_factor = 1;
  Activation activation = Activation::kSilu;  // kRelu2: two matrices an expert
  bool shared_gate = false;                   // the shared expert is weighted by a sigmoid
  std::string_view shared_name = "shared_expert";
  bool shared_bias = false;  // biases in the shared expert and the latent projections

  double read_share() const { return static_cast<double>(num_experts_per_tok) / num_experts; }
};

// Checks ranges that the op takes for granted.
Result<void> check_moe_config(const MoeConfig& config);

class MoeBlock {
 public:
  // `prefix`: "model.layers.3.mlp."
  Result<void> load(const MoeConfig& config, int hidden_size, const std::string& prefix,
                    const ModelSource& source, Packer& packer);
  // x += block(h), in place.
  void add_(ops::Context& ctx, Tensor x, Tensor h) const;

 private:
  MoeConfig config_;
  // The router's rows and behind them, where there is one, the row of the shared expert's gate.
  std::unique_ptr<PackedWeight> router_;
  std::unique_ptr<PackedWeight> up_, down_, shared_up_, shared_down_, latent_down_, latent_up_;
  std::vector<float> correction_bias_, shared_up_bias_, shared_down_bias_, latent_down_bias_,
      latent_up_bias_;
};

}  // namespace invar
