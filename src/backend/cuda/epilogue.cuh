// Epilogues of the linear kernels, on accumulators in C-fragment order: lane 4g + t holds rows g
// and g + 8 of a strip for tokens 2t and 2t + 1 of each eight. One element at a time with explicit
// roundings: which tile an element sits in cannot reach its value.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/epilogue.h"
#include "backend/cuda/packed.h"

namespace invar::cuda {

__device__ __forceinline__ float silu(float x) { return __fdiv_rn(x, __fadd_rn(1.f, expf(-x))); }

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
__device__ __forceinline__ float gelu_tanh(float x) {
  const float cube = __fmul_rn(__fmul_rn(x, x), x);
  const float inner = __fmul_rn(0.7978845608028654f, __fmaf_rn(0.044715f, cube, x));
  return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.f, tanhf(inner)));
}

__device__ __forceinline__ void store_value(const Epilogue& e, int token, int row, float v) {
  const int64_t at = token * e.y_stride + row;
  if (e.y_type == OutputType::kF32)
    static_cast<float*>(e.y)[at] = v;
  else
    static_cast<__nv_bfloat16*>(e.y)[at] = __float2bfloat16_rn(v);
}

// kTiles tiles of eight tokens from first_token on; acc[4 i + j] is c_j of tile i.
template <int kTiles>
__device__ __forceinline__ void store_strip(const Epilogue& e, bool gated, int num_rows, int strip,
                                            int first_token, int num_tokens, const float* acc) {
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const int token = first_token + 8 * i + 2 * t + odd;
      if (token >= num_tokens) continue;
      const float low = __fmul_rn(acc[4 * i + odd], kWeightUndo);
      const float high = __fmul_rn(acc[4 * i + 2 + odd], kWeightUndo);
      if (gated) {
        const int row = strip * 8 + g;
        if (row >= num_rows) continue;
        const float a = e.activation == GateActivation::kSilu ? silu(low) : gelu_tanh(low);
        store_value(e, token, row, __fmul_rn(a, high));
        continue;
      }
#pragma unroll
      for (int upper = 0; upper < 2; ++upper) {
        const int row = strip * kStripRows + g + 8 * upper;
        if (row >= num_rows) continue;
        float v = upper ? high : low;
        if (e.bias) v = __fadd_rn(v, e.bias[row]);
        if (e.softcap > 0) v = __fmul_rn(e.softcap, tanhf(__fdiv_rn(v, e.softcap)));
        if (e.residual) v = __fadd_rn(v, e.residual[token * e.residual_stride + row]);
        store_value(e, token, row, v);
      }
    }
}

}  // namespace invar::cuda
