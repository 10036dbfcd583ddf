#include "backend/cuda/device.cuh"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/norm.cuh"
#include "backend/cuda/row_ops.h"
#include "base/check.h"

namespace invar::cuda {
namespace {

// Sum over a block: lanes by xor, then warps in order. Every thread gets it.
__device__ __forceinline__ float block_sum(float v) {
  __shared__ float warps[kNormWarps];
  v = lanes_sum(v);
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = v;
  __syncthreads();
  return warps_sum(warps);
}

// One block per token. Widths that are a multiple of 4 up to 8192: a thread keeps columns
// 4 (threadIdx.x + 512 i) .. + 3 in registers, so x is read once and the weights before the wait.
// Other widths: columns threadIdx.x + 512 i, two passes. Which of the two depends on the width
// only. store(i, v): column i gets v = x / rms * weight.
template <typename Store>
__device__ __forceinline__ void normalize(const float* x, const float* weight, float eps,
                                          int num_cols, Store&& store) {
  if (num_cols % 4 == 0 && num_cols <= kNormMaxCols) {
    float4 w[kNormVectors], v[kNormVectors];
    const int count = num_cols / 4;
#pragma unroll
    for (int i = 0; i < kNormVectors; ++i) {
      const int at = threadIdx.x + i * kNormThreads;
      if (at < count) w[i] = reinterpret_cast<const float4*>(weight)[at];
    }
    wait_for_producer();
    let_next_kernel_start();
#pragma unroll
    for (int i = 0; i < kNormVectors; ++i) {
      const int at = threadIdx.x + i * kNormThreads;
      v[i] = at < count ? reinterpret_cast<const float4*>(x)[at] : make_float4(0, 0, 0, 0);
    }
    const float scale = inverse_root(block_sum(thread_squares(v)), num_cols, eps);
#pragma unroll
    for (int i = 0; i < kNormVectors; ++i) {
      const int at = threadIdx.x + i * kNormThreads;
      if (at < count) store(4 * at, normalized(v[i], scale, w[i]));
    }
    return;
  }
  wait_for_producer();
  let_next_kernel_start();
  float sum = 0.f;
  for (int i = threadIdx.x; i < num_cols; i += kNormThreads) sum = __fmaf_rn(x[i], x[i], sum);
  const float scale = inverse_root(block_sum(sum), num_cols, eps);
  for (int i = threadIdx.x; i < num_cols; i += kNormThreads)
    store(i, __fmul_rn(__fmul_rn(x[i], scale), weight[i]));
}

struct StoreBf16 {
  __nv_bfloat16* y;
  __device__ void operator()(int i, float v) const { y[i] = __float2bfloat16_rn(v); }
  __device__ void operator()(int i, float4 v) const {
    *reinterpret_cast<uint2*>(y + i) = make_uint2(bf16_pair(v.x, v.y), bf16_pair(v.z, v.w));
  }
};
struct AddF32 {
  const float* residual;
  float* y;
  __device__ void operator()(int i, float v) const { y[i] = __fadd_rn(residual[i], v); }
  __device__ void operator()(int i, float4 v) const {
    const float4 r = *reinterpret_cast<const float4*>(residual + i);
    *reinterpret_cast<float4*>(y + i) = make_float4(__fadd_rn(r.x, v.x), __fadd_rn(r.y, v.y),
                                                    __fadd_rn(r.z, v.z), __fadd_rn(r.w, v.w));
  }
};

__global__ void __launch_bounds__(kNormThreads)
    rms_norm_kernel(const float* x, int64_t x_stride, const float* weight, float eps, int num_cols,
                    __nv_bfloat16* y, int64_t y_stride) {
  normalize(x + blockIdx.x * x_stride, weight, eps, num_cols, StoreBf16{y + blockIdx.x * y_stride});
}

__global__ void __launch_bounds__(kNormThreads)
    rms_norm_add_kernel(const float* x, int64_t x_stride, const float* weight, float eps,
                        int num_cols, const float* residual, int64_t residual_stride, float* y,
                        int64_t y_stride) {
  normalize(x + blockIdx.x * x_stride, weight, eps, num_cols,
            AddF32{residual + blockIdx.x * residual_stride, y + blockIdx.x * y_stride});
}

__device__ __forceinline__ float value_of(float v) { return v; }
__device__ __forceinline__ float value_of(__nv_bfloat16 v) { return __bfloat162float(v); }
__device__ __forceinline__ void assign(float& to, float v) { to = v; }
__device__ __forceinline__ void assign(__nv_bfloat16& to, float v) { to = __float2bfloat16_rn(v); }

// One warp per (token, head).
template <typename T>
__global__ void __launch_bounds__(128)
    head_rms_norm_kernel(T* x, int64_t x_stride, const float* weight, float eps, int num_pairs,
                         int num_heads, int head_dim) {
  wait_for_producer();
  let_next_kernel_start();
  const int pair = blockIdx.x * 4 + (threadIdx.x >> 5), lane = threadIdx.x & 31;
  if (pair >= num_pairs) return;
  x += pair / num_heads * x_stride + pair % num_heads * head_dim;
  float sum = 0.f;
  for (int i = lane; i < head_dim; i += 32) {
    const float v = value_of(x[i]);
    sum = __fmaf_rn(v, v, sum);
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) sum = __fadd_rn(sum, __shfl_xor_sync(~0u, sum, o));
  const float scale = inverse_root(sum, head_dim, eps);
  for (int i = lane; i < head_dim; i += 32)
    assign(x[i], __fmul_rn(__fmul_rn(value_of(x[i]), scale), weight[i]));
}

__device__ __forceinline__ float2 rotation_of(double position, double inv_freq, float magnitude) {
  double sine, cosine;
  sincos(position * inv_freq, &sine, &cosine);
  return make_float2(__fmul_rn(__double2float_rn(cosine), magnitude),
                     __fmul_rn(__double2float_rn(sine), magnitude));
}

__global__ void __launch_bounds__(128)
    rope_table_kernel(const int32_t* positions, const double* inv_freq, int num_freqs,
                      float magnitude, float2* table) {
  wait_for_producer();
  let_next_kernel_start();
  for (int i = threadIdx.x; i < num_freqs; i += 128)
    table[int64_t{blockIdx.x} * num_freqs + i] =
        rotation_of(positions[blockIdx.x], inv_freq[i], magnitude);
}

// One block per token and kRopeHeads heads: sines into shared memory, then a thread per pair.
constexpr int kRopeHeads = 4, kRopeThreads = 256;
template <typename T>
__global__ void __launch_bounds__(kRopeThreads)
    rope_kernel(T* x, int64_t x_stride, const int32_t* positions, const double* inv_freq,
                int num_freqs, float magnitude, int num_heads, int head_dim) {
  extern __shared__ float2 rotation[];  // cos, sin
  const double position = positions[blockIdx.x];
  for (int i = threadIdx.x; i < num_freqs; i += kRopeThreads)
    rotation[i] = rotation_of(position, inv_freq[i], magnitude);
  wait_for_producer();
  let_next_kernel_start();
  __syncthreads();
  const int first = blockIdx.y * kRopeHeads, heads = min(kRopeHeads, num_heads - first);
  x += blockIdx.x * x_stride + first * head_dim;
  for (int p = threadIdx.x; p < heads * num_freqs; p += kRopeThreads) {
    const int i = p % num_freqs;
    T* head = x + p / num_freqs * head_dim;
    const float2 r = rotation[i];
    const float u = value_of(head[i]), v = value_of(head[i + num_freqs]);
    assign(head[i], __fmaf_rn(u, r.x, -__fmul_rn(v, r.y)));
    assign(head[i + num_freqs], __fmaf_rn(v, r.x, __fmul_rn(u, r.y)));
  }
}

__global__ void __launch_bounds__(256)
    gather_rows_kernel(const uint8_t* x, int64_t x_stride, const int32_t* rows, int64_t row_bytes,
                       uint8_t* y, int64_t y_stride) {
  wait_for_producer();
  const uint8_t* from = x + rows[blockIdx.x] * x_stride;
  uint8_t* to = y + blockIdx.x * y_stride;
  for (int64_t i = threadIdx.x * 16; i < row_bytes; i += blockDim.x * 16)
    *reinterpret_cast<uint4*>(to + i) = *reinterpret_cast<const uint4*>(from + i);
}

constexpr int kBestThreads = 256, kBestCols = 4096;  // of a block
__global__ void __launch_bounds__(kBestThreads)
    best_ids_kernel(const float* logits, int64_t stride, int num_cols, int num_ids,
                    const uint32_t* banned, unsigned long long* best) {
  __shared__ unsigned long long warps[kBestThreads / 32];
  wait_for_producer();
  let_next_kernel_start();
  const float* row = logits + blockIdx.y * stride;
  unsigned long long top = 0;
#pragma unroll
  for (int i = 0; i < kBestCols / kBestThreads; ++i) {
    const int id = blockIdx.x * kBestCols + i * kBestThreads + threadIdx.x;
    if (id >= num_cols) continue;
    const float v = __fadd_rn(__ldcg(row + id), 0.f);  // no negative zero: equals are equal
    const uint32_t bits = __float_as_uint(v);
    if ((bits & 0x7f800000u) == 0x7f800000u) {
      top = ~0ull;
      continue;
    }
    if (id >= num_ids || (banned != nullptr && (banned[id >> 5] >> (id & 31) & 1))) continue;
    const uint32_t order = bits ^ (bits >> 31 ? 0xffffffffu : 0x80000000u);
    top = max(top, static_cast<unsigned long long>(order) << 32 | ~static_cast<uint32_t>(id));
  }
#pragma unroll
  for (int o = 16; o > 0; o >>= 1) top = max(top, __shfl_xor_sync(~0u, top, o));
  if ((threadIdx.x & 31) == 0) warps[threadIdx.x >> 5] = top;
  __syncthreads();
  if (threadIdx.x != 0) return;
#pragma unroll
  for (int i = 1; i < kBestThreads / 32; ++i) top = max(top, warps[i]);
  atomicMax(best + blockIdx.y, top);
}

void check_rows(const float* x, int64_t x_stride, int num_cols) {
  INVAR_CHECK(num_cols % 4 != 0 || (x_stride % 4 == 0 && reinterpret_cast<uintptr_t>(x) % 16 == 0),
              "rows of x are not aligned to 16 bytes");
}

}  // namespace

void rms_norm(cudaStream_t stream, const float* x, int64_t x_stride, const float* weight, float eps,
              int num_tokens, int num_cols, void* y, int64_t y_stride, bool dependent) {
  if (num_tokens == 0) return;
  check_rows(x, x_stride, num_cols);
  launch(rms_norm_kernel, dim3(num_tokens), dim3(kNormThreads), 0, stream, dependent, x, x_stride,
         weight, eps, num_cols, static_cast<__nv_bfloat16*>(y), y_stride);
}

void rms_norm_add(cudaStream_t stream, const float* x, int64_t x_stride, const float* weight,
                  float eps, int num_tokens, int num_cols, const float* residual,
                  int64_t residual_stride, float* y, int64_t y_stride, bool dependent) {
  if (num_tokens == 0) return;
  check_rows(x, x_stride, num_cols);
  check_rows(residual, residual_stride, num_cols);
  check_rows(y, y_stride, num_cols);
  launch(rms_norm_add_kernel, dim3(num_tokens), dim3(kNormThreads), 0, stream, dependent, x,
         x_stride, weight, eps, num_cols, residual, residual_stride, y, y_stride);
}

void head_rms_norm(cudaStream_t stream, OutputType type, void* x, int64_t x_stride,
                   const float* weight, float eps, int num_tokens, int num_heads, int head_dim,
                   bool dependent) {
  if (num_tokens == 0) return;
  const int pairs = num_tokens * num_heads;
  const dim3 grid((pairs + 3) / 4), block(128);
  if (type == OutputType::kF32)
    launch(head_rms_norm_kernel<float>, grid, block, 0, stream, dependent, static_cast<float*>(x),
           x_stride, weight, eps, pairs, num_heads, head_dim);
  else
    launch(head_rms_norm_kernel<__nv_bfloat16>, grid, block, 0, stream, dependent,
           static_cast<__nv_bfloat16*>(x), x_stride, weight, eps, pairs, num_heads, head_dim);
}

void rope(cudaStream_t stream, OutputType type, void* x, int64_t x_stride, const int32_t* positions,
          const double* inv_freq, int num_freqs, float magnitude, int num_tokens, int num_heads,
          int head_dim, bool dependent) {
  if (num_tokens == 0) return;
  INVAR_CHECK(2 * num_freqs <= head_dim, "%d frequencies, head_dim %d", num_freqs, head_dim);
  const dim3 grid(num_tokens, (num_heads + kRopeHeads - 1) / kRopeHeads), block(kRopeThreads);
  const size_t shared_bytes = num_freqs * sizeof(float2);
  if (type == OutputType::kF32)
    launch(rope_kernel<float>, grid, block, shared_bytes, stream, dependent, static_cast<float*>(x),
           x_stride, positions, inv_freq, num_freqs, magnitude, num_heads, head_dim);
  else
    launch(rope_kernel<__nv_bfloat16>, grid, block, shared_bytes, stream, dependent,
           static_cast<__nv_bfloat16*>(x), x_stride, positions, inv_freq, num_freqs, magnitude,
           num_heads, head_dim);
}

void rope_table(cudaStream_t stream, const int32_t* positions, const double* inv_freq,
                int num_freqs, float magnitude, int num_tokens, float2* table, bool dependent) {
  if (num_tokens == 0) return;
  launch(rope_table_kernel, dim3(num_tokens), dim3(128), 0, stream, dependent, positions, inv_freq,
         num_freqs, magnitude, table);
}

void best_ids(cudaStream_t stream, const float* logits, int64_t stride, int num_rows, int num_cols,
              int num_ids, const uint32_t* banned, unsigned long long* best, bool dependent) {
  if (num_rows == 0) return;
  launch(best_ids_kernel, dim3((num_cols + kBestCols - 1) / kBestCols, num_rows),
         dim3(kBestThreads), 0, stream, dependent, logits, stride, num_cols, num_ids, banned, best);
}

void gather_rows(cudaStream_t stream, const void* x, int64_t x_stride_bytes, const int32_t* rows,
                 int num_rows, int64_t row_bytes, void* y, int64_t y_stride_bytes) {
  if (num_rows == 0) return;
  INVAR_CHECK(row_bytes % 16 == 0, "rows of %ld bytes", long{row_bytes});
  launch(gather_rows_kernel, dim3(num_rows), dim3(256), 0, stream, false,
         static_cast<const uint8_t*>(x), x_stride_bytes, rows, row_bytes, static_cast<uint8_t*>(y),
         y_stride_bytes);
}

}  // namespace invar::cuda
