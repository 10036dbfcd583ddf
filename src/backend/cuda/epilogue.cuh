// Epilogues of the linear kernels, on accumulators in C-fragment order: lane 4g + t holds rows g
// and g + 8 of a strip for tokens 2t and 2t + 1 of each eight. One element at a time with explicit
// roundings: which tile an element sits in cannot reach its value.
#pragma once

#include "backend/cuda/device.cuh"
#include "backend/cuda/epilogue.h"
#include "backend/cuda/packed.h"

namespace invar::cuda {

// Short forms on ex2 and rcp (2 and 1 ulp): an inlined expf, tanhf or division per element makes
// the epilogue of a prefill tile 200 KB of code, and fetching it costs 15 us a tile (measured).
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float silu(float x) {
  return __fmul_rn(x, reciprocal(__fadd_rn(1.f, exp2_approx(__fmul_rn(x, -1.4426950408889634f)))));
}

// Near zero 1 - 2 / (1 + e^2x) cancels, so a polynomial takes over (relative error under 1e-7).
__device__ __forceinline__ float tanh_short(float x) {
  const float e = exp2_approx(__fmul_rn(x, 2.8853900817779268f));
  const float far = __fmaf_rn(-2.f, reciprocal(__fadd_rn(1.f, e)), 1.f);
  const float s = __fmul_rn(x, x);
  float near = __fmaf_rn(s, 0.021869488536155203f, -0.053968253968253971f);
  near = __fmaf_rn(s, near, 0.13333333333333333f);
  near = __fmaf_rn(s, near, -0.33333333333333331f);
  near = __fmaf_rn(__fmul_rn(s, near), x, x);
  return fabsf(x) < 0.3f ? near : far;
}

// 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
__device__ __forceinline__ float gelu_tanh(float x) {
  const float cube = __fmul_rn(__fmul_rn(x, x), x);
  const float inner = __fmul_rn(0.7978845608028654f, __fmaf_rn(0.044715f, cube, x));
  return __fmul_rn(__fmul_rn(0.5f, x), __fadd_rn(1.f, tanh_short(inner)));
}

__device__ __forceinline__ void store_value(const Epilogue& e, int token, int row, float v) {
  const int64_t at = token * e.y_stride + row;
  if (e.y_type == OutputType::kF32)
    static_cast<float*>(e.y)[at] = v;
  else
    static_cast<__nv_bfloat16*>(e.y)[at] = __float2bfloat16_rn(v);
}

template <bool kSilu>
__device__ __forceinline__ float gated_value(float gate, float up) {
  gate = __fmul_rn(gate, kWeightUndo);
  return __fmul_rn(kSilu ? silu(gate) : gelu_tanh(gate), __fmul_rn(up, kWeightUndo));
}
template <bool kSoftcap>
__device__ __forceinline__ float plain_value(float v, bool has_bias, float bias, float softcap,
                                             bool has_residual, float residual) {
  v = __fmul_rn(v, kWeightUndo);
  if (has_bias) v = __fadd_rn(v, bias);
  if (kSoftcap) v = __fmul_rn(softcap, tanh_short(__fdiv_rn(v, softcap)));
  return has_residual ? __fadd_rn(v, residual) : v;
}

// kTiles tiles of eight tokens from first_token on; acc[4 i + j] is c_j of tile i. Loops per case,
// so that a kernel walks through the code of its own case only.
template <int kTiles, bool kSilu>
__device__ __forceinline__ void store_gated(const Epilogue& e, int num_rows, int strip,
                                            int first_token, int num_tokens, const float* acc) {
  const int lane = threadIdx.x & 31, row = strip * 8 + (lane >> 2);
  if (row >= num_rows) return;
#pragma unroll
  for (int i = 0; i < kTiles; ++i)
#pragma unroll
    for (int odd = 0; odd < 2; ++odd) {
      const int token = first_token + 8 * i + 2 * (lane & 3) + odd;
      if (token >= num_tokens) continue;
      store_value(e, token, row, gated_value<kSilu>(acc[4 * i + odd], acc[4 * i + 2 + odd]));
    }
}

// Residual of one token for the two rows of this lane, asked for early: it comes from L2, and the
// sums of a small matrix are made in the time that takes.
__device__ __forceinline__ float2 early_residual(const Epilogue& e, int num_rows, int strip) {
  const int lane = threadIdx.x & 31, row = strip * kStripRows + (lane >> 2);
  if (e.residual == nullptr || (lane & 3) != 0) return make_float2(0.f, 0.f);
  return make_float2(row < num_rows ? e.residual[row] : 0.f,
                     row + 8 < num_rows ? e.residual[row + 8] : 0.f);
}

// kEarly: one token, and its residual is `early`.
template <int kTiles, bool kSoftcap, bool kEarly>
__device__ __forceinline__ void store_plain(const Epilogue& e, int num_rows, int strip,
                                            int first_token, int num_tokens, const float* acc,
                                            float2 early) {
  const int lane = threadIdx.x & 31;
#pragma unroll
  for (int upper = 0; upper < 2; ++upper) {
    const int row = strip * kStripRows + (lane >> 2) + 8 * upper;
    if (row >= num_rows) continue;
    const float bias = e.bias ? e.bias[row] : 0.f;
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int token = first_token + 8 * i + 2 * (lane & 3) + odd;
        if (token >= num_tokens) continue;
        const float residual = kEarly       ? (upper ? early.y : early.x)
                               : e.residual ? e.residual[token * e.residual_stride + row]
                                            : 0.f;
        store_value(e, token, row,
                    plain_value<kSoftcap>(acc[4 * i + 2 * upper + odd], e.bias != nullptr, bias,
                                          e.softcap, e.residual != nullptr, residual));
      }
  }
}

template <int kTiles, bool kEarly = false>
__device__ __forceinline__ void store_strip(const Epilogue& e, bool gated, int num_rows, int strip,
                                            int first_token, int num_tokens, const float* acc,
                                            float2 early = {}) {
  if (gated && e.activation == GateActivation::kSilu)
    store_gated<kTiles, true>(e, num_rows, strip, first_token, num_tokens, acc);
  else if (gated)
    store_gated<kTiles, false>(e, num_rows, strip, first_token, num_tokens, acc);
  else if (e.softcap > 0)
    store_plain<kTiles, true, kEarly>(e, num_rows, strip, first_token, num_tokens, acc, early);
  else
    store_plain<kTiles, false, kEarly>(e, num_rows, strip, first_token, num_tokens, acc, early);
}

}  // namespace invar::cuda
