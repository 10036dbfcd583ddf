// MoeOps: what a backend offers beside Backend for sparse mixtures of experts. Callers are ops/,
// which checks shapes; reference/ is the obvious form.
//
// A row's reply depends on its own logits, its own input and the weights: which rows share an
// expert in a step, and how many, must not change a bit.
#pragma once

#include <span>

#include "backend/backend.h"

namespace invar {

enum class RouterScore {
  kSoftmax,  // over all experts
  kSigmoid
};

struct MoeArgs {
  int num_experts = 0;
  int num_experts_per_tok = 0;
  RouterScore score = RouterScore::kSoftmax;
  // Added to the scores for the choice alone, [num_experts]; empty: none.
  std::span<const float> correction_bias;
  // Experts stand in n_group groups of neighbours, of which the topk_group with the largest sums of
  // their two best (corrected) scores may be chosen from.
  int n_group = 1, topk_group = 1;
  bool norm_topk_prob = true;       // weights are divided by their sum (plus norm_eps)
  float norm_eps = 0;               // 1e-20 where a family has it
  float routed_scaling_factor = 1;  // then multiplied by this
  // kSilu: `up` was packed with kGateAndUp; kRelu2: it is one matrix.
  Activation activation = Activation::kSilu;
};

class MoeOps {
 public:
  virtual ~MoeOps() = default;

  // logits[t] = w x[t], both in fp32 or better, w packed with role kRouter: a rounded input could
  // choose another expert.   x [num_rows, w.num_cols], logits [num_rows, w.num_rows]
  virtual void router(Tensor logits, Tensor x, const PackedWeight& w) = 0;

  // For each row the num_experts_per_tok experts of the largest scores (of equals the lower id),
  // in descending order of score: these are its slots. Then
  //   y[t] = sum over slots ascending of weight * down_e(act(up_e x[t])), + residual[t] where set.
  // x [num_rows, up.num_cols]; logits [num_rows, num_experts]; y, residual [num_rows,
  // down.num_rows], y may be the residual itself; up, down: packed with num_experts.
  virtual void moe(Tensor y, Tensor x, Tensor logits, const PackedWeight& up,
                   const PackedWeight& down, const MoeArgs& args, Tensor residual) = 0;

  // Experts that some row of the last moe() chose, whose weights it read; 0: not counted.
  virtual int num_experts_read() const { return 0; }

  // y[t] += sigmoid(gate[t]) * x[t], for an expert that every row has.
  // x, y [num_rows, num_cols]; gate [num_rows, 1]
  virtual void add_gated(Tensor y, Tensor x, Tensor gate) = 0;
};

}  // namespace invar
