// What the attention kernels share: reading rows of q, k and v (rotated or not), storing k and v in
// their pages, and the fold of groups.
#pragma once

#include <cmath>

#include "backend/cuda/attention.h"
#include "backend/cuda/device.cuh"

namespace invar::cuda {

constexpr int kPRow = kGroupKeys + 8;  // of P in shared memory; padded: other banks for every row

// Eight values from element `at` on, as bf16.
__device__ __forceinline__ uint4 load_eight(const void* from, OutputType type, int64_t at) {
  if (type == OutputType::kBF16)
    return __ldcg(reinterpret_cast<const uint4*>(static_cast<const __nv_bfloat16*>(from) + at));
  const float4* f = reinterpret_cast<const float4*>(static_cast<const float*>(from) + at);
  const float4 a = __ldcg(f), b = __ldcg(f + 1);
  return make_uint4(bf16_pair(a.x, a.y), bf16_pair(a.z, a.w), bf16_pair(b.x, b.y),
                    bf16_pair(b.z, b.w));
}

// Eight values of a head that begins at element `at` of row `row`, from `dim` on, rotated where the
// call says so. The roundings are those of rope_kernel.
__device__ __forceinline__ uint4 load_rotated(const AttentionParams& p, const void* from,
                                              int64_t at, int row, int dim) {
  const int n = p.c.num_freqs;
  if (p.c.rotation == nullptr || dim >= 2 * n) return load_eight(from, p.c.input_type, at + dim);
  const bool second = dim >= n;
  const int i = second ? dim - n : dim;
  const float* head = static_cast<const float*>(from) + at;
  const float4* u = reinterpret_cast<const float4*>(head + i);
  const float4* v = reinterpret_cast<const float4*>(head + i + n);
  const float4* r = reinterpret_cast<const float4*>(p.c.rotation + int64_t{row} * n + i);
  const float4 u0 = __ldcg(u), u1 = __ldcg(u + 1), v0 = __ldcg(v), v1 = __ldcg(v + 1), r0 = r[0],
               r1 = r[1], r2 = r[2], r3 = r[3];
  auto turn = [&](float a, float b, float cosine, float sine) {
    return second ? __fmaf_rn(b, cosine, __fmul_rn(a, sine))
                  : __fmaf_rn(a, cosine, -__fmul_rn(b, sine));
  };
  return make_uint4(bf16_pair(turn(u0.x, v0.x, r0.x, r0.y), turn(u0.y, v0.y, r0.z, r0.w)),
                    bf16_pair(turn(u0.z, v0.z, r1.x, r1.y), turn(u0.w, v0.w, r1.z, r1.w)),
                    bf16_pair(turn(u1.x, v1.x, r2.x, r2.y), turn(u1.y, v1.y, r2.z, r2.w)),
                    bf16_pair(turn(u1.z, v1.z, r3.x, r3.y), turn(u1.w, v1.w, r3.z, r3.w)));
}

// ---- Storing k and v. Eight values of one row and head; V goes to its transposed place.
__device__ __forceinline__ void store_kv(const AttentionParams& p, const DeviceWindow& w, int row,
                                         int head, int dim) {
  const AttentionShape& s = p.c.shape;
  const int position = w.start + row - w.first_row, key = position % kGroupKeys;
  __nv_bfloat16* page = static_cast<__nv_bfloat16*>(p.c.cache) +
                        p.c.pages[w.first_page + position / kGroupKeys] * p.page_size;
  __nv_bfloat16* keys = page + int64_t{head} * 2 * kGroupKeys * s.head_dim;
  __nv_bfloat16* values = keys + kGroupKeys * s.head_dim;
  const int from = head * s.head_dim;
  const uint4 k = load_rotated(p, p.c.k, row * p.c.k_stride + from, row, dim);
  const uint4 v = load_eight(p.c.v, p.c.input_type, row * p.c.v_stride + from + dim);
  *reinterpret_cast<uint4*>(keys + key * s.head_dim + dim) = k;
  const auto* value = reinterpret_cast<const __nv_bfloat16*>(&v);
#pragma unroll
  for (int i = 0; i < 8; ++i) values[(dim + i) * kGroupKeys + key] = value[i];
}

__device__ __forceinline__ float quad_max(float v) {
  v = fmaxf(v, __shfl_xor_sync(~0u, v, 1));
  return fmaxf(v, __shfl_xor_sync(~0u, v, 2));
}
__device__ __forceinline__ float quad_sum(float v) {
  v = __fadd_rn(v, __shfl_xor_sync(~0u, v, 1));
  return __fadd_rn(v, __shfl_xor_sync(~0u, v, 2));
}

// Running result of a row: maximum, sum; O is kept beside.
struct Fold {
  float keep_old, keep_new;  // factors of the old and the new O
};
// Factors for a group of maximum m_g after groups of maximum m. A group without a visible key is a
// no-op, the first one with a key is copied.
__device__ __forceinline__ Fold fold_factors(float m, float m_g) {
  const float top = fmaxf(m, m_g);
  if (m_g == -INFINITY) return {1.f, 0.f};
  if (m == -INFINITY) return {0.f, 1.f};
  return {exp2_approx(m - top), exp2_approx(m_g - top)};
}
// For O and for l.
__device__ __forceinline__ float fold_value(const Fold& f, float old_value, float new_value) {
  const float both = __fmaf_rn(new_value, f.keep_new, __fmul_rn(old_value, f.keep_old));
  if (f.keep_new == 0.f && f.keep_old == 1.f) return old_value;
  if (f.keep_old == 0.f && f.keep_new == 1.f) return new_value;
  return both;
}

// A warp per (row, head) and 32 of its dimensions: folds the partial groups in order, kChunk at a
// time, the loads of a chunk under way while the one before is folded. A maximum has no order, so
// the running maxima come from a scan and all factors at once; what is left in sequence is one fma
// a group. Same bits as one group after another. So little shared memory that it finds room beside
// attention_stream and waits there for its end.
constexpr int kCombineDims = 32, kCombineThreads = 32, kCombineChunk = 64;
struct CombineScratch {
  float value[kCombineChunk][kCombineDims];
  float4 fold[kCombineChunk];  // l of the group, keep_old, keep_new
};
// A row of a head and the groups it sees: one that it cannot see at all is a no-op of the fold.
struct CombineRow {
  int row, head, begin, end;
};
__device__ __forceinline__ CombineRow combine_row(const AttentionParams& p, int row, int head) {
  const DeviceWindow w = p.c.windows[p.c.row_window[row]];
  const int position = w.start + row - w.first_row, window = p.c.shape.sliding_window;
  return {row, head, window > 0 ? max(0, position - window + 1) / kGroupKeys : 0,
          position / kGroupKeys + 1};
}
template <int kHeadDim>
__device__ __forceinline__ void combine_groups(const AttentionParams& p, const CombineRow& r,
                                               int dim_block, CombineScratch& scratch) {
  constexpr int kRow = kHeadDim + 4, kPart = 16;  // loads that stand together or not at all
  const int lane = threadIdx.x & 31, dim = dim_block * kCombineDims + lane;
  const float* from =
      p.c.workspace + (int64_t{r.row} * p.c.shape.num_heads + r.head) * p.groups * kRow;
  // Lane i has maxima and sums of groups 2i and 2i + 1.
  float2 ml[2];
  float v[kCombineChunk];
  auto load = [&](int first) {
    const int n = r.end - first;
    const float* part = from + int64_t{first} * kRow;
#pragma unroll
    for (int j = 0; j < 2; ++j)
      ml[j] = 2 * lane + j < n
                  ? __ldcg(reinterpret_cast<const float2*>(part + (2 * lane + j) * kRow + kHeadDim))
                  : make_float2(-INFINITY, 0.f);
#pragma unroll
    for (int i = 0; i < kCombineChunk; i += kPart) {
      if (i >= n) continue;
#pragma unroll
      for (int j = 0; j < kPart; ++j)
        v[i + j] = i + j < n ? __ldcg(part + (i + j) * kRow + dim) : 0.f;
    }
  };
  float top = -INFINITY, l = 0.f, out = 0.f;
  load(r.begin);
  for (int first = r.begin; first < r.end; first += kCombineChunk) {
    const int n = min(kCombineChunk, r.end - first);
    float up_to = fmaxf(ml[0].x, ml[1].x);  // becomes the maximum up to and with this lane's
#pragma unroll
    for (int o = 1; o < 32; o *= 2) {
      const float other = __shfl_up_sync(~0u, up_to, o);
      if (lane >= o) up_to = fmaxf(up_to, other);
    }
    float before = __shfl_up_sync(~0u, up_to, 1);
    before = lane == 0 ? top : fmaxf(top, before);
    top = fmaxf(top, __shfl_sync(~0u, up_to, 31));
    __syncwarp();  // the chunk before has been read
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const Fold f = fold_factors(before, ml[j].x);
      scratch.fold[2 * lane + j] = make_float4(ml[j].y, f.keep_old, f.keep_new, 0.f);
      before = fmaxf(before, ml[j].x);
    }
#pragma unroll
    for (int i = 0; i < kCombineChunk; i += kPart) {
      if (i >= n) continue;
#pragma unroll
      for (int j = 0; j < kPart; ++j) scratch.value[i + j][lane] = v[i + j];
    }
    __syncwarp();
    if (first + kCombineChunk < r.end) load(first + kCombineChunk);
#pragma unroll 8
    for (int i = 0; i < n; ++i) {
      const float4 g = scratch.fold[i];
      const Fold now = {g.y, g.z};
      l = fold_value(now, l, g.x);
      out = fold_value(now, out, scratch.value[i][lane]);
    }
  }
  static_cast<__nv_bfloat16*>(p.c.y)[r.row * p.c.y_stride + r.head * kHeadDim + dim] =
      __float2bfloat16_rn(__fdiv_rn(out, l));
}

}  // namespace invar::cuda
