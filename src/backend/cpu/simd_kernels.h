// The table of vector kernels that one instruction set offers to the ops beside it: each entry
// works on plain pointers. simd_kernels_<isa>.cc fill one table each from the *_inl.h files, which
// are written once over the 16-lane vector of simd.h.
#pragma once

#include <cstdint>

#include "backend/cpu/isa.h"
#include "backend/cpu/row_ops.h"

namespace invar::cpu {

struct AttentionTile;  // attention_tile.h

struct SimdKernels {
  RowOps row_ops;
  // One row of `count` values; residual may be null; y may be x or residual.
  void (*rms_norm)(float* y, const float* x, const float* weight, const float* residual,
                   int64_t count, float eps);
  // One head in place; cos and sin have num_pairs values each.
  void (*rope)(float* x, const float* cos, const float* sin, int64_t num_pairs);
  // fp32 to fp16, nearest even.
  void (*to_f16)(uint16_t* y, const float* x, int64_t count);
};

const SimdKernels& simd_kernels(Isa isa);

}  // namespace invar::cpu
