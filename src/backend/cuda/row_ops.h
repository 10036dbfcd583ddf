// The small kernels around the linear ones: norms, rope, row copies, and storing new keys and
// values. Host side; each works on rows independently with a fixed order of sums.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/epilogue.h"

namespace invar::cuda {

// y[t] = bf16(x[t] / sqrt(mean(x[t]^2) + eps) * weight).  x fp32, y bf16.
void rms_norm(cudaStream_t stream, const float* x, int64_t x_stride, const float* weight, float eps,
              int num_tokens, int num_cols, void* y, int64_t y_stride, bool dependent = false);

// y[t] = rms_norm(x[t]) + residual[t], all fp32; y may be x or residual.
void rms_norm_add(cudaStream_t stream, const float* x, int64_t x_stride, const float* weight,
                  float eps, int num_tokens, int num_cols, const float* residual,
                  int64_t residual_stride, float* y, int64_t y_stride, bool dependent = false);

// In place on heads of the given type: x [num_tokens, num_heads * head_dim].
void head_rms_norm(cudaStream_t stream, OutputType type, void* x, int64_t x_stride,
                   const float* weight, float eps, int num_tokens, int num_heads, int head_dim,
                   bool dependent = false);

// Half-split rotation in place. inv_freq on the device, num_freqs <= head_dim / 2; angles and their
// sines are computed in double from the position alone. A dependent launch reads the positions
// ahead of its wait: the kernel before must not be what writes them.
void rope(cudaStream_t stream, OutputType type, void* x, int64_t x_stride, const int32_t* positions,
          const double* inv_freq, int num_freqs, float magnitude, int num_tokens, int num_heads,
          int head_dim, bool dependent = false);

// Cosine and sine, times magnitude, of every (token, frequency): [num_tokens, num_freqs]. What
// rope() computes for itself; made once a step for attention(), which then rotates as it reads.
void rope_table(cudaStream_t stream, const int32_t* positions, const double* inv_freq,
                int num_freqs, float magnitude, int num_tokens, float2* table,
                bool dependent = false);

// The largest of logits[t] [num_cols] among ids below num_ids whose bit in `banned` is not set, the
// lowest id of equals: best[t], zero before, becomes a value for decode_best(). A logit that is not
// finite anywhere in the row is said instead. Maxima have no order, so neither do its atomics.
void best_ids(cudaStream_t stream, const float* logits, int64_t stride, int num_rows, int num_cols,
              int num_ids, const uint32_t* banned, unsigned long long* best,
              bool dependent = false);
inline constexpr unsigned long long kNotFinite = ~0ull;
inline int32_t decode_best(unsigned long long best) {  // -1: none, or kNotFinite
  return best == 0 || best == kNotFinite ? -1 : static_cast<int32_t>(~best & 0xffffffffu);
}

// y[i] = x[rows[i]], row_bytes a multiple of 16.
void gather_rows(cudaStream_t stream, const void* x, int64_t x_stride_bytes, const int32_t* rows,
                 int num_rows, int64_t row_bytes, void* y, int64_t y_stride_bytes);

}  // namespace invar::cuda
