// Attention kernels; the arithmetic is in attention.h.
//
// A CTA of four warps owns kTiles * 16 query rows, packed (token, query head of one kv head), and
// one kv head. In a group of 256 keys each warp makes the scores of 64 keys (K fragments straight
// from the page), the four agree on the maximum through shared memory, P goes to shared memory as
// bf16, and each warp multiplies a quarter of head_dim (V is stored transposed, so its fragments
// come straight from the page too).
//
// Order inside a 32-wide step: lane t reads 16 contiguous bytes, columns 8t .. 8t + 7; the first
// k16 step takes {8t .. 8t + 3} of every lane and the second the rest. Which columns form a step is
// part of the contract, and both kernels share it.
#include <algorithm>
#include <cmath>

#include "backend/cuda/attention.h"
#include "backend/cuda/attention_parts.cuh"
#include "backend/cuda/attention_stream.h"
#include "backend/cuda/attention_token.h"
#include "backend/cuda/device.cuh"
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/launch.cuh"
#include "base/check.h"

namespace invar::cuda {
namespace {

// Of attention_token: an SM each while a group is all there is; several groups are better streamed
// (measured).
constexpr int kTokenCtas = 132, kTokenSplitCtas = 16;
constexpr int kWarps = 4, kThreads = kWarps * 32, kTileKeys = kGroupKeys / kWarps;

__global__ void __launch_bounds__(256) store_kv_kernel(const __grid_constant__ AttentionParams p) {
  wait_for_producer();
  let_next_kernel_start();
  const AttentionShape& s = p.c.shape;
  const int chunks = s.num_kv_heads * s.head_dim / 8;
  const int64_t index = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (index >= int64_t{p.c.num_rows} * chunks) return;
  const int row = static_cast<int>(index / chunks), chunk = static_cast<int>(index % chunks);
  store_kv(p, p.c.windows[p.c.row_window[row]], row, chunk * 8 / s.head_dim,
           chunk * 8 % s.head_dim);
}

// Bytes of dynamic shared memory: Q, P, row maxima and sums of the four tiles.
__host__ __device__ constexpr int q_row(int head_dim) { return head_dim + 8; }
__host__ __device__ constexpr size_t shared_bytes(int tiles, int head_dim) {
  return static_cast<size_t>(tiles) * 16 * (q_row(head_dim) * 2 + kPRow * 2 + 2 * kWarps * 4);
}

// CTAs of an SM that registers must allow: a long context has more groups than SMs.
__host__ __device__ constexpr int least_ctas(int head_dim, int tiles) {
  return tiles == 1 && head_dim <= 128 ? 4 : 1;
}

template <int kHeadDim, int kTiles, bool kSoftcap>
__global__ void __launch_bounds__(kThreads, least_ctas(kHeadDim, kTiles))
    attention_kernel(const __grid_constant__ AttentionParams p) {
  constexpr int kRows = kTiles * 16, kSteps = kHeadDim / 32, kOut = kHeadDim / kWarps / 8;
  constexpr int kAhead = 2;  // steps of V in registers
  extern __shared__ __align__(16) uint8_t shared[];
  auto* q_shared = reinterpret_cast<__nv_bfloat16*>(shared);
  auto* p_shared = q_shared + kRows * q_row(kHeadDim);
  auto* max_shared = reinterpret_cast<float*>(p_shared + kRows * kPRow);
  float* sum_shared = max_shared + kWarps * kRows;

  const AttentionShape& s = p.c.shape;
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const DeviceWindow w = p.c.windows[blockIdx.z % p.c.num_windows];
  const int split_group = blockIdx.z / p.c.num_windows, kv_head = blockIdx.y;
  const int packed_rows = w.num_rows * p.heads_per_kv, first = blockIdx.x * kRows;
  if (first >= packed_rows) {
    wait_for_producer();
    return;
  }
  const int last = min(first + kRows, packed_rows) - 1;
  const int first_position = w.start + first / p.heads_per_kv;
  const int last_position = w.start + last / p.heads_per_kv;
  const int known = w.start + w.num_rows;  // keys at and beyond are not of this sequence

  int group = p.split ? split_group : 0, end = last_position / kGroupKeys + 1;
  if (s.sliding_window > 0)
    group = max(group, max(0, first_position - s.sliding_window + 1) / kGroupKeys);
  if (p.split) {
    if (split_group >= end) {
      wait_for_producer();
      return;
    }
    end = split_group + 1;
  }

  // The pages come into L2 while Q is read: fragments are loaded a few at a time and would
  // otherwise each wait for memory. A long context's K alone is more than half of L2, so V is asked
  // for when K is being read.
  constexpr uint32_t kPartBytes = kGroupKeys * kHeadDim * 2;  // K or V
  if ((p.split || p.store_inside) && threadIdx.x == 0 && group < end)
    prefetch_l2(static_cast<const __nv_bfloat16*>(p.c.cache) +
                    p.c.pages[w.first_page + group] * p.page_size +
                    int64_t{kv_head} * 2 * kGroupKeys * kHeadDim,
                p.values_later ? kPartBytes : 2 * kPartBytes);
  wait_for_producer();
  let_next_kernel_start();

  // Q in shared memory; rows beyond the last are zeros.
#pragma unroll 1
  for (int i = threadIdx.x; i < kRows * (kHeadDim / 8); i += kThreads) {
    const int row = i / (kHeadDim / 8), chunk = i % (kHeadDim / 8), packed = first + row;
    uint4 v = make_uint4(0, 0, 0, 0);
    if (packed < packed_rows) {
      const int token = w.first_row + packed / p.heads_per_kv;
      const int head = kv_head * p.heads_per_kv + packed % p.heads_per_kv;
      v = load_rotated(p, p.c.q, token * p.c.q_stride + head * kHeadDim, token, chunk * 8);
    }
    *reinterpret_cast<uint4*>(q_shared + row * q_row(kHeadDim) + chunk * 8) = v;
  }
  // New rows of a group are stored by the CTA that attends to it: nobody else needs them now. The
  // barrier below makes them visible to the whole CTA.
  if (p.store_inside)
#pragma unroll 1
    for (int i = threadIdx.x; i < w.num_rows * (kHeadDim / 8); i += kThreads) {
      const int row = i / (kHeadDim / 8), of_group = (w.start + row) / kGroupKeys;
      if (of_group >= group && of_group < end)
        store_kv(p, w, w.first_row + row, kv_head, i % (kHeadDim / 8) * 8);
    }
  __syncthreads();

  float m[kTiles][2], l[kTiles][2], out[kTiles][kOut][4];
#pragma unroll
  for (int r = 0; r < kTiles; ++r) {
    m[r][0] = m[r][1] = -INFINITY;
    l[r][0] = l[r][1] = 0.f;
#pragma unroll
    for (int n = 0; n < kOut; ++n)
#pragma unroll
      for (int i = 0; i < 4; ++i) out[r][n][i] = 0.f;
  }

  for (; group < end; ++group) {
    const __nv_bfloat16* page = static_cast<const __nv_bfloat16*>(p.c.cache) +
                                p.c.pages[w.first_page + group] * p.page_size;
    const __nv_bfloat16* keys = page + int64_t{kv_head} * 2 * kGroupKeys * kHeadDim;
    const __nv_bfloat16* values = keys + kGroupKeys * kHeadDim;

    // Split, so this is the only group; said in a way that costs no register.
    if (p.values_later && threadIdx.x == 0 && group == end - 1) prefetch_l2(values, kPartBytes);

    // Scores of 16 rows x 64 keys a tile: eight n8 key blocks.
    float score[kTiles][8][4];
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int n = 0; n < 8; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) score[r][n][i] = 0.f;
    const __nv_bfloat16* my_keys = keys + (warp * kTileKeys + g) * kHeadDim + 8 * t;
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      uint4 k[8];
#pragma unroll
      for (int n = 0; n < 8; ++n)
        k[n] = *reinterpret_cast<const uint4*>(my_keys + n * 8 * kHeadDim + step * 32);
#pragma unroll
      for (int r = 0; r < kTiles; ++r) {
        const __nv_bfloat16* q = q_shared + (r * 16 + g) * q_row(kHeadDim) + step * 32 + 8 * t;
        const uint4 low = *reinterpret_cast<const uint4*>(q);
        const uint4 high = *reinterpret_cast<const uint4*>(q + 8 * q_row(kHeadDim));
        const uint32_t a0[4] = {low.x, high.x, low.y, high.y},
                       a1[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          mma_step(score[r][n], a0, k[n].x, k[n].y);
          mma_step(score[r][n], a1, k[n].z, k[n].w);
        }
      }
    }

    // The first V fragments are asked for before anything waits. Keys that do not exist yet become
    // zeros: whatever an unused slot holds must not meet a p of zero.
    const __nv_bfloat16* my_values = values + (warp * (kHeadDim / kWarps) + g) * kGroupKeys + 8 * t;
    const int left = known - group * kGroupKeys;
    uint4 v[kAhead][kOut];
    auto load_values = [&](int first_step) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int keep = left - (first_step + i) * 32 - 8 * t;  // of this lane's eight keys
#pragma unroll
        for (int n = 0; n < kOut; ++n) {
          v[i][n] = *reinterpret_cast<const uint4*>(my_values + n * 8 * kGroupKeys +
                                                    (first_step + i) * 32);
          if (keep >= 8) continue;
          uint32_t* word = reinterpret_cast<uint32_t*>(&v[i][n]);
#pragma unroll
          for (int j = 0; j < 4; ++j)
            word[j] &= keep >= 2 * j + 2 ? ~0u : keep == 2 * j + 1 ? 0xffffu : 0u;
        }
      }
    };
    load_values(0);

    // Scale, mask, maximum.
    const int first_key = group * kGroupKeys + warp * kTileKeys;
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int position = w.start + (first + r * 16 + 8 * half + g) / p.heads_per_kv;
        float top = -INFINITY;
#pragma unroll
        for (int n = 0; n < 8; ++n)
#pragma unroll
          for (int odd = 0; odd < 2; ++odd) {
            const int key = first_key + n * 8 + 2 * t + odd;
            float& x = score[r][n][2 * half + odd];
            x = __fmul_rn(x, p.log2_scale);
            if (kTiles == 1 ? s.softcap > 0 : kSoftcap)
              x = __fmul_rn(p.log2_softcap, tanh_short(x));
            const bool visible =
                key <= position && (s.sliding_window <= 0 || position - key < s.sliding_window);
            if (!visible) x = -INFINITY;
            top = fmaxf(top, x);
          }
        top = quad_max(top);
        if (t == 0) max_shared[warp * kRows + r * 16 + 8 * half + g] = top;
      }
    __syncthreads();

    // Probabilities, as bf16 into shared memory; sums of the unrounded ones.
    float m_group[kTiles][2];
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = r * 16 + 8 * half + g;
        float top = max_shared[row];
#pragma unroll
        for (int i = 1; i < kWarps; ++i) top = fmaxf(top, max_shared[i * kRows + row]);
        m_group[r][half] = top;
        const float base = top == -INFINITY ? 0.f : top;
        float sum = 0.f;
#pragma unroll
        for (int n = 0; n < 8; ++n) {
          const float a = exp2_approx(score[r][n][2 * half] - base);
          const float b = exp2_approx(score[r][n][2 * half + 1] - base);
          sum = __fadd_rn(sum, __fadd_rn(a, b));
          *reinterpret_cast<uint32_t*>(p_shared + row * kPRow + warp * kTileKeys + n * 8 + 2 * t) =
              bf16_pair(a, b);
        }
        sum = quad_sum(sum);
        if (t == 0) sum_shared[warp * kRows + row] = sum;
      }
    __syncthreads();

    // O of the group: this warp's quarter of head_dim.
    float o[kTiles][kOut][4];
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int n = 0; n < kOut; ++n)
#pragma unroll
        for (int i = 0; i < 4; ++i) o[r][n][i] = 0.f;
#pragma unroll
    for (int first_step = 0; first_step < kGroupKeys / 32; first_step += kAhead) {
#pragma unroll
      for (int i = 0; i < kAhead; ++i)
#pragma unroll
        for (int r = 0; r < kTiles; ++r) {
          const __nv_bfloat16* pr = p_shared + (r * 16 + g) * kPRow + (first_step + i) * 32 + 8 * t;
          const uint4 low = *reinterpret_cast<const uint4*>(pr);
          const uint4 high = *reinterpret_cast<const uint4*>(pr + 8 * kPRow);
          const uint32_t a0[4] = {low.x, high.x, low.y, high.y},
                         a1[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
          for (int n = 0; n < kOut; ++n) {
            mma_step(o[r][n], a0, v[i][n].x, v[i][n].y);
            mma_step(o[r][n], a1, v[i][n].z, v[i][n].w);
          }
        }
      if (first_step + kAhead < kGroupKeys / 32) load_values(first_step + kAhead);
    }

    // Fold. Every warp keeps m and l of all rows; they agree.
#pragma unroll
    for (int r = 0; r < kTiles; ++r)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int row = r * 16 + 8 * half + g;
        float l_group = sum_shared[row];
#pragma unroll
        for (int i = 1; i < kWarps; ++i) l_group = __fadd_rn(l_group, sum_shared[i * kRows + row]);
        const Fold f = fold_factors(m[r][half], m_group[r][half]);
        m[r][half] = fmaxf(m[r][half], m_group[r][half]);
        l[r][half] = fold_value(f, l[r][half], l_group);
#pragma unroll
        for (int n = 0; n < kOut; ++n)
#pragma unroll
          for (int odd = 0; odd < 2; ++odd)
            out[r][n][2 * half + odd] =
                fold_value(f, out[r][n][2 * half + odd], o[r][n][2 * half + odd]);
      }
    __syncthreads();  // before the next group writes P and the maxima
  }

#pragma unroll
  for (int r = 0; r < kTiles; ++r)
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int packed = first + r * 16 + 8 * half + g;
      if (packed >= packed_rows) continue;
      const int token = w.first_row + packed / p.heads_per_kv;
      const int head = kv_head * p.heads_per_kv + packed % p.heads_per_kv;
      const int dim = warp * (kHeadDim / kWarps) + 2 * t;
      if (p.split) {  // partial: O, then m and l
        float* to =
            p.c.workspace +
            ((int64_t{token} * s.num_heads + head) * p.groups + split_group) * (kHeadDim + 4);
#pragma unroll
        for (int n = 0; n < kOut; ++n)
          *reinterpret_cast<float2*>(to + dim + n * 8) =
              make_float2(out[r][n][2 * half], out[r][n][2 * half + 1]);
        if (warp == 0 && t == 0) {
          to[kHeadDim] = m[r][half];
          to[kHeadDim + 1] = l[r][half];
        }
        continue;
      }
      auto* to = static_cast<__nv_bfloat16*>(p.c.y) + token * p.c.y_stride + head * kHeadDim + dim;
#pragma unroll
      for (int n = 0; n < kOut; ++n)
        *reinterpret_cast<uint32_t*>(to + n * 8) =
            bf16_pair(__fdiv_rn(out[r][n][2 * half], l[r][half]),
                      __fdiv_rn(out[r][n][2 * half + 1], l[r][half]));
    }
}

template <int kHeadDim>
__global__ void __launch_bounds__(kCombineThreads)
    combine_kernel(const __grid_constant__ AttentionParams p) {
  __shared__ CombineScratch scratch;
  const int heads = p.c.shape.num_heads;
  const CombineRow row = combine_row(p, blockIdx.x / heads, blockIdx.x % heads);
  wait_for_producer();
  let_next_kernel_start();
  combine_groups<kHeadDim>(p, row, blockIdx.y, scratch);
}

// Kernels for one new token a sequence.
enum class OneToken : uint8_t { kNone, kFewGroups, kManyGroups };

template <int kHeadDim>
void run(cudaStream_t stream, const AttentionParams& p, int tiles, OneToken one, bool dependent) {
  const AttentionShape& s = p.c.shape;
  const int packed = p.c.max_window_rows * p.heads_per_kv, rows = tiles * 16;
  const dim3 grid((packed + rows - 1) / rows, s.num_kv_heads,
                  p.c.num_windows * (p.split ? p.c.max_groups : 1));
  // One tile looks at softcap as it runs: compiled without that branch, loads of V move behind the
  // scores and a short context takes 1 us longer (measured).
  const auto kernel = tiles == 1      ? attention_kernel<kHeadDim, 1, true>
                      : s.softcap > 0 ? attention_kernel<kHeadDim, 2, true>
                                      : attention_kernel<kHeadDim, 2, false>;
  if (one == OneToken::kFewGroups)
    attention_token(stream, p, dependent);
  else if (one == OneToken::kManyGroups)
    attention_stream(stream, p, dependent);
  else
    launch(kernel, grid, dim3(kThreads), shared_bytes(tiles, kHeadDim), stream, dependent, p);
  if (p.split)
    launch(combine_kernel<kHeadDim>, dim3(p.c.num_rows * s.num_heads, kHeadDim / kCombineDims),
           dim3(kCombineThreads), 0, stream, dependent, p);
}

}  // namespace

size_t attention_workspace_bytes(const AttentionShape& s, int num_rows, int max_groups) {
  return sizeof(float) * num_rows * s.num_heads * max_groups * (s.head_dim + 4);
}

AttentionParams attention_params(const AttentionCall& call) {
  constexpr float kLog2E = 1.4426950408889634f;
  const AttentionShape& s = call.shape;
  AttentionParams p;
  p.c = call;
  p.heads_per_kv = s.num_heads / s.num_kv_heads;
  p.page_size = page_elements(s.num_kv_heads, s.head_dim);
  p.groups = call.max_groups;
  p.log2_scale = s.softcap > 0 ? s.scale / s.softcap : s.scale * kLog2E;
  p.log2_softcap = s.softcap * kLog2E;
  return p;
}

void attention(cudaStream_t stream, const AttentionCall& call, const AttentionSchedule& schedule) {
  if (call.num_rows == 0) return;
  const AttentionShape& s = call.shape;
  INVAR_CHECK(s.num_heads % s.num_kv_heads == 0, "%d heads, %d kv heads", s.num_heads,
              s.num_kv_heads);
  AttentionParams p = attention_params(call);

  using Path = AttentionSchedule::Path;
  const bool fits =
      call.workspace_bytes >= attention_workspace_bytes(s, call.num_rows, call.max_groups);
  // Splitting pays while the row tiles alone do not fill the chip.
  p.split = schedule.path == Path::kChoose
                ? fits && call.max_groups > 1 && call.max_window_rows <= 16
                : schedule.path == Path::kSplit;
  INVAR_CHECK(!p.split || fits, "%zu bytes of workspace", call.workspace_bytes);
  const int packed = call.max_window_rows * p.heads_per_kv;
  const int tiles = schedule.row_tiles ? schedule.row_tiles : packed <= 16 ? 1 : 2;
  p.store_inside = packed <= 16 * tiles;
  p.values_later = p.split && schedule.prefetch != 1;
  INVAR_CHECK(
      call.rotation == nullptr || (call.input_type == OutputType::kF32 && call.num_freqs % 8 == 0),
      "rotation of %d frequencies", call.num_freqs);
  // A CTA an SM that waits for memory once, against several that wait often: better while all
  // groups run at once.
  const bool can_token = call.max_window_rows == 1 && p.heads_per_kv <= 16 &&
                         (p.split || call.max_groups == 1) && s.head_dim % 64 == 0;
  const int items = s.num_kv_heads * call.num_windows * call.max_groups;
  const bool token = can_token && schedule.stream != 2 &&
                     (schedule.token == 2 || (schedule.token == 0 && schedule.row_tiles == 0 &&
                                              items <= (p.split ? kTokenSplitCtas : kTokenCtas)));
  const bool many = can_token && p.split && schedule.token != 2 &&
                    (schedule.stream == 2 || (schedule.stream == 0 && schedule.row_tiles == 0));
  const OneToken one = token  ? OneToken::kFewGroups
                       : many ? OneToken::kManyGroups
                              : OneToken::kNone;
  if (!p.store_inside) {
    const int64_t chunks = int64_t{call.num_rows} * s.num_kv_heads * s.head_dim / 8;
    launch(store_kv_kernel, dim3(static_cast<unsigned>((chunks + 255) / 256)), dim3(256), 0, stream,
           schedule.dependent, p);
  }
  switch (s.head_dim) {
    case 64:
      return run<64>(stream, p, tiles, one, schedule.dependent);
    case 128:
      return run<128>(stream, p, tiles, one, schedule.dependent);
    case 256:
      return run<256>(stream, p, tiles, one, schedule.dependent);
    default:
      INVAR_CHECK(false, "head_dim %d", s.head_dim);
  }
}

}  // namespace invar::cuda
