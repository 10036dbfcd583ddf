// The table of vector kernels that one instruction set offers to the ops beside it. Each works on
// plain pointers; the set's simd_kernels_<set>.cc fills it from the *_inl.h files, which are
// written once over the 16-lane vector of simd.h.
#pragma once

#include <cstdint>

#include "backend/cpu/attention_tile.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/recurrent_kernels.h"
#include "backend/cpu/row_ops.h"

namespace invar::cpu {

// Contracts: moe_inl.h.
struct MoeKernels {
  void (*weighted_sum)(float* y, const float* const* rows, const float* weights, int num_rows,
                       const float* residual, int64_t count);
  void (*add_scaled)(float* y, const float* x, float factor, int64_t count);
};

struct SimdKernels {
  RowOps row_ops;
  AttentionKernels attention;
  // One row of `count` values; residual may be null; y may be x or residual.
  void (*rms_norm)(float* y, const float* x, const float* weight, const float* residual,
                   int64_t count, float eps);
  // One head in place; cos and sin have num_pairs values each.
  void (*rope)(float* x, const float* cos, const float* sin, int64_t num_pairs);
  MoeKernels moe;
  RecurrentKernels recurrent;
};

// The set must be available.
const SimdKernels& simd_kernels(Isa isa);

}  // namespace invar::cpu
