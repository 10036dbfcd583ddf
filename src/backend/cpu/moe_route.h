// Which experts a row goes to, and rows in order of experts. Scalar fp32 with base/math.h, so the
// same bits on every instruction set:
//   softmax   score = exp(logit - largest) / sum over experts ascending
//   sigmoid   score = 1 / (1 + exp(-logit))
//   weight    score / (sum over slots ascending + norm_eps), where asked, * routed_scaling_factor
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "backend/moe_ops.h"

namespace invar::cpu {

// Slot j of the row: experts[j] and weights[j]; both have num_experts_per_tok entries. With a NaN
// among the scores the weights are NaN and the experts are the first ones.
void route_row(const float* logits, const MoeArgs& args, int32_t* experts, float* weights);

// (row, slot) pairs in order of expert, of one expert in order of row: so each expert's rows stand
// together, and a pair is found again without a search.
struct PairOrder {
  std::vector<int64_t> first;  // [num_experts + 1]: expert e has pairs [first[e], first[e + 1])
  std::vector<int64_t> pair;   // [num_rows * num_slots]: where (row, slot) went
  std::vector<int64_t> row;    // of each pair

  // experts: [num_rows * num_slots]
  void sort(std::span<const int32_t> experts, int num_slots, int num_experts);
};

}  // namespace invar::cpu
