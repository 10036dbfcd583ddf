// Root mean square of a row, in the one order that every kernel uses: 512 threads, thread t sums
// columns 4t .. 4t + 3 + 2048 i, lanes by xor, warps ascending. rms_norm has a block of its own for
// it; lin_decode of one token does it in front of the product.
#pragma once

#include "backend/cuda/device.cuh"

namespace invar::cuda {

constexpr int kNormThreads = 512, kNormVectors = 4, kNormWarps = kNormThreads / 32;
constexpr int kNormMaxCols = 4 * kNormThreads * kNormVectors;

__device__ __forceinline__ float thread_squares(const float4 (&v)[kNormVectors]) {
  float sum = 0.f;
#pragma unroll
  for (int i = 0; i < kNormVectors; ++i)
    sum = __fmaf_rn(
        v[i].w, v[i].w,
        __fmaf_rn(v[i].z, v[i].z, __fmaf_rn(v[i].y, v[i].y, __fmaf_rn(v[i].x, v[i].x, sum))));
  return sum;
}

__device__ __forceinline__ float lanes_sum(float v) {
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) v = __fadd_rn(v, __shfl_xor_sync(~0u, v, o));
  return v;
}

__device__ __forceinline__ float warps_sum(const float* warps) {
  float sum = warps[0];
#pragma unroll
  for (int i = 1; i < kNormWarps; ++i) sum = __fadd_rn(sum, warps[i]);
  return sum;
}

__device__ __forceinline__ float inverse_root(float sum, int num_cols, float eps) {
  const float mean = __fdiv_rn(sum, static_cast<float>(num_cols));
  return __fdiv_rn(1.f, __fsqrt_rn(__fadd_rn(mean, eps)));
}

__device__ __forceinline__ float4 normalized(float4 v, float scale, float4 w) {
  return make_float4(__fmul_rn(__fmul_rn(v.x, scale), w.x), __fmul_rn(__fmul_rn(v.y, scale), w.y),
                     __fmul_rn(__fmul_rn(v.z, scale), w.z), __fmul_rn(__fmul_rn(v.w, scale), w.w));
}

}  // namespace invar::cuda
