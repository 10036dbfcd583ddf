// Attention where every sequence has one new token and groups are few: a context of up to some
// thousand keys, where the time is latency and not bytes.
//
// A CTA of sixteen warps owns one kv head and one group of 256 keys: 16 keys a warp for the scores,
// 8 dimensions of head_dim (16 of 256) a warp for the output. Every load of the group is under way
// at once, ahead of the wait; the new token's own key and value come through shared memory. Bits
// are those of attention.cu: its warps have 64 keys, so sums over 64 keys are put together here in
// the order in which one warp makes them there.
#include "backend/cuda/attention_parts.cuh"
#include "backend/cuda/attention_token.h"
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace invar::cuda {
namespace {

constexpr int kTokenWarps = 16, kTokenThreads = kTokenWarps * 32;

template <int kHeadDim>
struct TokenShared {
  __nv_bfloat16 q[16][kHeadDim + 8];
  __nv_bfloat16 p[16][kPRow];
  float pair_sum[2 * kTokenWarps][16][4];  // p of two keys: [eight keys][row][lane of a quad]
  float top[kTokenWarps][16];
  float tile_sum[4][16];
  __nv_bfloat16 new_k[kHeadDim], new_v[kHeadDim];
};

// Two values of which `keep` exist; the new token's is number `at`, if 0 or 1. By value: a pointer
// to the words of a vector would put it in local memory.
__device__ __forceinline__ uint32_t value_pair(uint32_t v, int keep, int at, uint32_t bits) {
  v &= keep >= 2 ? ~0u : keep == 1 ? 0xffffu : 0u;
  if (at == 0) v = (v & 0xffff0000u) | bits;
  if (at == 1) v = (v & 0xffffu) | bits << 16;
  return v;
}

// Grid: kv heads x windows x groups.
template <int kHeadDim>
__global__ void __launch_bounds__(kTokenThreads, 1)
    attention_token_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kSteps = kHeadDim / 32, kDimBlocks = kHeadDim / 8;
  constexpr int kOut = (kDimBlocks + kTokenWarps - 1) / kTokenWarps;  // n8 blocks of a warp
  // Registers hold K and V of a group up to head_dim 128; of 256 a half at a time.
  constexpr int kHold = kSteps < 4 ? kSteps : 4;
  __shared__ TokenShared<kHeadDim> shared;
  const AttentionShape& s = p.c.shape;
  const DeviceWindow w = p.c.windows[blockIdx.y];
  const int kv_head = blockIdx.x, position = w.start, row = w.first_row, heads = p.heads_per_kv;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const int first_group =
      s.sliding_window > 0 ? max(0, position - s.sliding_window + 1) / kGroupKeys : 0;
  const int group = blockIdx.z;
  if (group < first_group || group > position / kGroupKeys) {
    wait_for_producer();
    return;
  }
  const int left = position + 1 - group * kGroupKeys;  // keys from here on that exist
  const bool scores = warp * 16 < left;
  // Of the new token, if it is of this group; else far away from every key.
  const int new_key = left <= kGroupKeys ? left - 1 : -2 * kGroupKeys;
  __nv_bfloat16* keys = static_cast<__nv_bfloat16*>(p.c.cache) +
                        p.c.pages[w.first_page + group] * p.page_size +
                        int64_t{kv_head} * 2 * kGroupKeys * kHeadDim;
  __nv_bfloat16* values = keys + kGroupKeys * kHeadDim;
  const __nv_bfloat16* my_keys = keys + (warp * 16 + g) * kHeadDim + 8 * t;
  const __nv_bfloat16* my_values = values + (warp * 8 + g) * kGroupKeys + 8 * t;

  uint4 k[2][kHold], v[8];
  auto load_keys = [&](int first_step) {
#pragma unroll
    for (int i = 0; i < kHold; ++i)
#pragma unroll
      for (int n = 0; n < 2; ++n)
        k[n][i] =
            *reinterpret_cast<const uint4*>(my_keys + n * 8 * kHeadDim + (first_step + i) * 32);
  };
  auto load_values = [&](int n) {
#pragma unroll
    for (int step = 0; step < 8; ++step)
      v[step] = step * 32 < left ? *reinterpret_cast<const uint4*>(
                                       my_values + n * kTokenWarps * 8 * kGroupKeys + step * 32)
                                 : make_uint4(0, 0, 0, 0);
  };
  if (scores) load_keys(0);
  if (warp < kDimBlocks) load_values(0);
  wait_for_producer();
  let_next_kernel_start();

  if (threadIdx.x < 16 * (kHeadDim / 8) || kHeadDim == 256) {
    for (int i = threadIdx.x; i < 16 * (kHeadDim / 8); i += kTokenThreads) {
      const int r = i / (kHeadDim / 8), dim = i % (kHeadDim / 8) * 8;
      uint4 q = make_uint4(0, 0, 0, 0);
      if (r < heads)
        q = load_rotated(p, p.c.q, row * p.c.q_stride + (kv_head * heads + r) * kHeadDim, row, dim);
      *reinterpret_cast<uint4*>(&shared.q[r][dim]) = q;
    }
  }
  // The new token's k and v, by the last warp, into the page and into shared memory.
  if (new_key >= 0 && warp == kTokenWarps - 1 && lane < kHeadDim / 8) {
    const int dim = lane * 8, from = kv_head * kHeadDim;
    const uint4 nk = load_rotated(p, p.c.k, row * p.c.k_stride + from, row, dim);
    const uint4 nv = load_eight(p.c.v, p.c.input_type, row * p.c.v_stride + from + dim);
    *reinterpret_cast<uint4*>(&shared.new_k[dim]) = nk;
    *reinterpret_cast<uint4*>(&shared.new_v[dim]) = nv;
    *reinterpret_cast<uint4*>(keys + new_key * kHeadDim + dim) = nk;
    auto* to = reinterpret_cast<uint16_t*>(values) + dim * kGroupKeys + new_key;
    auto put = [&](int j, uint32_t pair) {
      to[j * kGroupKeys] = static_cast<uint16_t>(pair);
      to[(j + 1) * kGroupKeys] = static_cast<uint16_t>(pair >> 16);
    };
    put(0, nv.x);
    put(2, nv.y);
    put(4, nv.z);
    put(6, nv.w);
  }
  __syncthreads();

  // Scores of 16 rows x 16 keys.
  float score[2][4];
#pragma unroll
  for (int n = 0; n < 2; ++n)
#pragma unroll
    for (int i = 0; i < 4; ++i) score[n][i] = 0.f;
  if (scores) {
#pragma unroll
    for (int first_step = 0; first_step < kSteps; first_step += kHold) {
      if (first_step > 0) load_keys(first_step);
#pragma unroll
      for (int i = 0; i < kHold; ++i) {
        const int at = (first_step + i) * 32 + 8 * t;
        const uint4 low = *reinterpret_cast<const uint4*>(&shared.q[g][at]);
        const uint4 high = *reinterpret_cast<const uint4*>(&shared.q[g + 8][at]);
        const uint32_t a0[4] = {low.x, high.x, low.y, high.y},
                       a1[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int n = 0; n < 2; ++n) {
          if (warp * 16 + n * 8 + g == new_key)
            k[n][i] = *reinterpret_cast<const uint4*>(&shared.new_k[at]);
          mma_step(score[n], a0, k[n][i].x, k[n][i].y);
          mma_step(score[n], a1, k[n][i].z, k[n][i].w);
        }
      }
    }
  }
  const int first_key = group * kGroupKeys + warp * 16;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = -INFINITY;
#pragma unroll
    for (int n = 0; n < 2; ++n)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const int key = first_key + n * 8 + 2 * t + odd;
        float& x = score[n][2 * half + odd];
        x = __fmul_rn(x, p.log2_scale);
        if (s.softcap > 0) x = __fmul_rn(p.log2_softcap, tanh_short(x));
        const bool visible =
            key <= position && (s.sliding_window <= 0 || position - key < s.sliding_window);
        if (!visible) x = -INFINITY;
        top = fmaxf(top, x);
      }
    top = quad_max(top);
    if (t == 0) shared.top[warp][8 * half + g] = top;
  }
  __syncthreads();

  float m_group[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float top = shared.top[0][8 * half + g];
#pragma unroll
    for (int i = 1; i < kTokenWarps; ++i) top = fmaxf(top, shared.top[i][8 * half + g]);
    m_group[half] = top;
    const float base = top == -INFINITY ? 0.f : top;
#pragma unroll
    for (int n = 0; n < 2; ++n) {
      const float x = exp2_approx(score[n][2 * half] - base);
      const float y = exp2_approx(score[n][2 * half + 1] - base);
      shared.pair_sum[2 * warp + n][8 * half + g][t] = __fadd_rn(x, y);
      *reinterpret_cast<uint32_t*>(&shared.p[8 * half + g][warp * 16 + n * 8 + 2 * t]) =
          bf16_pair(x, y);
    }
  }
  __syncthreads();

  // Sums of 64 keys, by the last eight warps.
  if (warp >= 8) {
    const int i = threadIdx.x - 256, tile = i >> 6, r = (i >> 2) & 15;
    float sum = 0.f;
#pragma unroll
    for (int n = 0; n < 8; ++n) sum = __fadd_rn(sum, shared.pair_sum[8 * tile + n][r][t]);
    sum = quad_sum(sum);
    if (t == 0) shared.tile_sum[tile][r] = sum;
  }
  float out[kOut][4];
#pragma unroll
  for (int n = 0; n < kOut; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) out[n][i] = 0.f;
    const int dim_block = warp + n * kTokenWarps;
    if (dim_block >= kDimBlocks) continue;
    if (n > 0) load_values(n);
    // Slots beyond the last key hold anything and must not meet a p of zero. Steps beyond it would
    // add zeros, which change nothing: left out.
    const uint32_t bits = __bfloat16_as_ushort(shared.new_v[dim_block * 8 + g]);
#pragma unroll
    for (int step = 0; step < 8; ++step) {
      if (step * 32 >= left) continue;
      const int keep = left - step * 32 - 8 * t;  // of this lane's eight keys
      const int at = new_key - step * 32 - 8 * t;
      const uint4 mine = {value_pair(v[step].x, keep, at, bits),
                          value_pair(v[step].y, keep - 2, at - 2, bits),
                          value_pair(v[step].z, keep - 4, at - 4, bits),
                          value_pair(v[step].w, keep - 6, at - 6, bits)};
      const uint4 low = *reinterpret_cast<const uint4*>(&shared.p[g][step * 32 + 8 * t]);
      const uint4 high = *reinterpret_cast<const uint4*>(&shared.p[g + 8][step * 32 + 8 * t]);
      const uint32_t a0[4] = {low.x, high.x, low.y, high.y}, a1[4] = {low.z, high.z, low.w, high.w};
      mma_step(out[n], a0, mine.x, mine.y);
      mma_step(out[n], a1, mine.z, mine.w);
    }
  }
  __syncthreads();

#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int r = 8 * half + g, head = kv_head * heads + r;
    if (r >= heads) continue;
    float l = shared.tile_sum[0][r];
#pragma unroll
    for (int i = 1; i < 4; ++i) l = __fadd_rn(l, shared.tile_sum[i][r]);
    float* partial =
        p.c.workspace + ((int64_t{row} * s.num_heads + head) * p.groups + group) * (kHeadDim + 4);
    auto* y = static_cast<__nv_bfloat16*>(p.c.y) + row * p.c.y_stride + head * kHeadDim;
#pragma unroll
    for (int n = 0; n < kOut; ++n) {
      const int dim_block = warp + n * kTokenWarps, dim = dim_block * 8 + 2 * t;
      if (dim_block >= kDimBlocks) continue;
      const float o0 = out[n][2 * half], o1 = out[n][2 * half + 1];
      if (p.split)
        *reinterpret_cast<float2*>(partial + dim) = make_float2(o0, o1);
      else
        *reinterpret_cast<uint32_t*>(y + dim) = bf16_pair(__fdiv_rn(o0, l), __fdiv_rn(o1, l));
    }
    if (p.split && warp == 0 && t == 0)
      *reinterpret_cast<float2*>(partial + kHeadDim) = make_float2(m_group[half], l);
  }
}

}  // namespace

void attention_token(cudaStream_t stream, const AttentionParams& p, bool dependent) {
  const AttentionShape& s = p.c.shape;
  const dim3 grid(s.num_kv_heads, p.c.num_windows, p.split ? p.c.max_groups : 1);
  INVAR_CHECK(p.c.max_window_rows == 1 && p.heads_per_kv <= 16, "%d rows, %d heads of a kv head",
              p.c.max_window_rows, p.heads_per_kv);
  const auto kernel = s.head_dim == 64    ? attention_token_kernel<64>
                      : s.head_dim == 128 ? attention_token_kernel<128>
                                          : attention_token_kernel<256>;
  launch(kernel, grid, dim3(kTokenThreads), 0, stream, dependent, p);
}

}  // namespace invar::cuda
