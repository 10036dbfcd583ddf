// Between linear.cc and the kernel translation units, one per kind so that they compile side by
// side.
#pragma once

#include <cuda.h>

#include "backend/cuda/linear.h"

namespace invar::cuda {

// How a decode launch cuts its work; none of it enters a value.
struct DecodePlan {
  int num_warps = 0;  // compute warps: groups of num_slices warps, one strip a group at a time
  int num_stages = 0;
  int grid = 0;
  int slots = 0;         // places for tokens: 1, 8, 16 or 32
  int stage_blocks = 0;  // blocks of a ring stage
  int rounds = 0;        // strips that a CTA works through one after another or side by side
  size_t shared_bytes = 0;
};
struct PrefillPlan {
  int tokens = 0;  // of a tile
  int num_stages = 0;
  int grid = 0;
  size_t shared_bytes = 0;
};

// Box of x: 64 columns x tokens x blocks, swizzled. See linear.cc.
template <PackedKind kKind>
struct LinearKernels {
  static void decode(cudaStream_t, const CUtensorMap&, const LinearArgs&, const DecodePlan&,
                     const LinearSchedule&);
  static void prefill(cudaStream_t, const CUtensorMap&, const LinearArgs&, const PrefillPlan&,
                      bool dependent);
  static void unpack(cudaStream_t, const PackedMatrix&, void* out);
  static void embed(cudaStream_t, const PackedMatrix&, const int32_t* ids, int num_tokens,
                    float scale, float* y, int64_t y_stride);
};

// Blocks of a decode ring stage: copies of 2 to 5 KB are best (cuda-measured.md section 3).
INVAR_HD constexpr int few_stage_blocks(PackedKind kind) {
  return kind == PackedKind::kBf16 || kind == PackedKind::kQ8 ? 2 : 4;
}

// Compute warps of a decode CTA at most: what registers allow. Larger stages read a block ahead.
INVAR_HD constexpr int decode_warps(PackedKind kind, int slots, int stage_blocks) {
  return slots <= 8 ? (stage_blocks <= few_stage_blocks(kind) ? 24 : 20) : slots == 16 ? 16 : 12;
}

// Shared memory of a row that lin_decode normalizes, a multiple of 1024.
INVAR_HD constexpr int norm_row_bytes(int num_blocks) {
  return (num_blocks * 384 + 64 + 1023) / 1024 * 1024;
}

INVAR_HD constexpr int prefill_weight_bytes(PackedKind kind) {  // of a stage, padded for alignment
  return (8 * block_bytes(kind) + 1023) / 1024 * 1024;
}

// Levels of the slice tree that a prefill tile keeps in shared memory.
INVAR_HD constexpr int parked_levels(int num_slices) {
  return num_slices == 8 ? 2 : num_slices == 4 ? 1 : 0;
}

}  // namespace invar::cuda
