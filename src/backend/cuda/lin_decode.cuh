// lin_decode: y[m] = W x[m] for 1 to 32 tokens, bound by the bytes of W.
//
// A group of num_slices warps owns a strip of 16 rows, a warp one slice of its K. Every warp fills
// its own ring of weight stages with bulk copies (a single producer warp was the limit:
// cuda-measured.md section 3) before anything else happens, so that the first weights are under way
// while the kernel before still runs. One more warp brings x for the whole CTA: for one token a
// plain copy, else a box of [blocks, token slots, 64] per slice and stage. Slices of a strip are
// added in shared memory, in the tree that packed.h fixes. A CTA visits strips blockIdx * groups, +
// grid * groups, ...
#pragma once

#include "backend/cuda/codec.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/linear_kernels.h"
#include "backend/cuda/norm.cuh"

namespace invar::cuda {

struct DecodeParams {
  const uint8_t* w;
  const uint8_t* x;  // for one token; else the tensor map has it
  int num_strips, num_blocks, num_slices, log_slices, num_rows, num_tokens, num_stages;
  bool gated;
  Epilogue epilogue;
  const float* norm_weight;  // or null; see LinearArgs
  float norm_eps;
  bool trigger_late;
};

__device__ __forceinline__ float4 add4(float4 a, float4 b) {
  return make_float4(__fadd_rn(a.x, b.x), __fadd_rn(a.y, b.y), __fadd_rn(a.z, b.z),
                     __fadd_rn(a.w, b.w));
}

// The balanced tree over n partial results, n = 2, 4, 8.
template <typename Load>
__device__ __forceinline__ float4 tree_sum(int n, Load&& load) {
  float4 v = add4(load(0), load(1));
  if (n >= 4) v = add4(v, add4(load(2), load(3)));
  if (n == 8) v = add4(v, add4(add4(load(4), load(5)), add4(load(6), load(7))));
  return v;
}

// x as bf16 in shared memory from an fp32 row: rms_norm by the first `count` threads of the CTA
// (whole warps). `raw` keeps the row, `warps` the sums.
__device__ __forceinline__ void normalize_row(const float* x, const float* weight, float eps,
                                              int num_cols, int count, uint8_t* to, float4* raw,
                                              float* warps) {
  const int vectors = num_cols / 4;
  float4 w[kNormVectors];  // asked for ahead of the wait
#pragma unroll
  for (int i = 0; i < kNormVectors; ++i) {
    const int at = threadIdx.x + i * count;
    if (at < vectors) w[i] = reinterpret_cast<const float4*>(weight)[at];
  }
  wait_for_producer();
  for (int t = threadIdx.x; t < kNormThreads; t += count) {
    float4 v[kNormVectors];
#pragma unroll
    for (int i = 0; i < kNormVectors; ++i) {
      const int at = t + i * kNormThreads;
      v[i] =
          at < vectors ? __ldcg(reinterpret_cast<const float4*>(x) + at) : make_float4(0, 0, 0, 0);
    }
#pragma unroll
    for (int i = 0; i < kNormVectors; ++i)
      if (t + i * kNormThreads < vectors) raw[t + i * kNormThreads] = v[i];
    const float sum = lanes_sum(thread_squares(v));
    if ((t & 31) == 0) warps[t >> 5] = sum;
  }
  named_barrier(0, count);
  const float scale = inverse_root(warps_sum(warps), num_cols, eps);
  auto store = [&](int at, float4 weights) {
    const float4 n = normalized(raw[at], scale, weights);
    reinterpret_cast<uint2*>(to)[at] = make_uint2(bf16_pair(n.x, n.y), bf16_pair(n.z, n.w));
  };
#pragma unroll
  for (int i = 0; i < kNormVectors; ++i) {
    const int at = threadIdx.x + i * count;
    if (at < vectors) store(at, w[i]);
  }
  for (int at = threadIdx.x + kNormVectors * count; at < vectors; at += count)
    store(at, reinterpret_cast<const float4*>(weight)[at]);
  named_barrier(0, count);
}

// kSlots: places for tokens, 1, 8, 16 or 32. kStageBlocks: blocks of a ring stage.
template <PackedKind kKind, int kSlots, int kStageBlocks, int kMaxThreads, bool kNorm>
__global__ void __launch_bounds__(kMaxThreads, 1)
    lin_decode(const __grid_constant__ CUtensorMap x_map, const __grid_constant__ DecodeParams p) {
  constexpr int kBytes = block_bytes(kKind), kWeightStage = kStageBlocks * kBytes;
  constexpr int kTiles = (kSlots + 7) / 8, kPiece = kStageBlocks * kSlots * 128;
  using Code = Codec<kKind>;
  constexpr bool kReadAhead =
      sizeof(typename Code::Raw) <= 48 && (kSlots > 8 || kStageBlocks > few_stage_blocks(kKind) ||
                                           (kSlots == 1 && sizeof(typename Code::Raw) <= 24));

  extern __shared__ __align__(128) uint8_t shared_raw[];
  // An offset, not a rounded pointer: the compiler must see that all of it is shared memory.
  uint8_t* shared = shared_raw + (-shared_address(shared_raw) & 1023u);
  const int lane = threadIdx.x & 31, warp = threadIdx.x >> 5;
  const int num_warps = (blockDim.x >> 5) - 1, slices = p.num_slices;
  // Shifts: a division is a hundred instructions, run cold before the first weights are asked for.
  const int log = p.log_slices, groups = num_warps >> log, part = warp & (slices - 1);
  const int group = warp >> log;
  const int stages = p.num_stages, x_stage = slices * kPiece;
  const int longest = (p.num_blocks + slices - 1) >> log;  // no slice has more blocks
  const int steps = (longest + kStageBlocks - 1) / kStageBlocks;
  const int stride = gridDim.x * groups, first = blockIdx.x * groups;

  // With a norm the ring of x is the whole row: as bf16, then as it came, then 16 sums.
  uint8_t* x_ring = shared;
  uint8_t* w_ring = x_ring + (kNorm ? static_cast<size_t>(norm_row_bytes(p.num_blocks))
                                    : static_cast<size_t>(stages) * x_stage);
  float4* partial =
      reinterpret_cast<float4*>(w_ring + static_cast<size_t>(stages) * num_warps * kWeightStage);
  uint64_t* barriers =
      reinterpret_cast<uint64_t*>(partial + (slices > 1 ? 2 * num_warps * kTiles * 32 : 0));
  const uint32_t x_full = shared_address(barriers), x_empty = x_full + 8 * stages;
  const uint32_t w_full = x_empty + 8 * stages + 8 * stages * warp;

  const int begin = p.num_blocks * part >> log;  // slice_begin() of packed.h
  const int span = (p.num_blocks * (part + 1) >> log) - begin;

  if (threadIdx.x == num_warps * 32) {
    if (kSlots > 1) prefetch_tensor_map(&x_map);
    for (int i = 0; i < stages; ++i) {
      barrier_init(x_full + 8 * i, 1);
      barrier_init(x_empty + 8 * i, num_warps);
    }
    barrier_init_fence();
  }
  // Requests run ahead of the arithmetic by up to `stages` steps. A step beyond this slice, or of a
  // strip that does not exist, still takes a barrier phase: x and weights share the slot count.
  int ask_strip = first + group, ask_step = 0;
  const uint64_t policy = evict_first_policy();
  const uint32_t my_ring = shared_address(w_ring) + warp * stages * kWeightStage;
  auto request = [&](int slot) {
    if (ask_strip - group >= p.num_strips) return;
    const int k = ask_step * kStageBlocks;
    const int n = ask_strip < p.num_strips ? max(0, min(kStageBlocks, span - k)) : 0;
    barrier_expect(w_full + 8 * slot, n * kBytes);
    if (n > 0)
      bulk_copy_once(my_ring + slot * kWeightStage,
                     p.w + (static_cast<size_t>(ask_strip) * p.num_blocks + begin + k) * kBytes,
                     n * kBytes, w_full + 8 * slot, policy);
    if (++ask_step == steps) {
      ask_step = 0;
      ask_strip += stride;
    }
  };
  if (warp < num_warps && lane == 0) {
    for (int i = 0; i < stages; ++i) barrier_init(w_full + 8 * i, 1);
    barrier_init_fence();
    for (int i = 0; i < stages; ++i) request(i);
  }
  __syncthreads();

  if (warp == num_warps && kNorm) return;
  if (warp == num_warps) {  // ---- x
    wait_for_producer();
    let_next_kernel_start();
    int slot = 0, parity = 1;
    for (int s0 = first; s0 < p.num_strips; s0 += stride)
      for (int step = 0; step < steps; ++step) {
        barrier_wait(x_empty + 8 * slot, parity);
        const int k = (p.num_blocks * lane >> log) + step * kStageBlocks;
        if constexpr (kSlots == 1) {
          // Up to the end of the row: what lies beyond a slice is not used.
          const int n = lane < slices ? max(0, min(kStageBlocks, p.num_blocks - k)) * 128 : 0;
          const int total = __reduce_add_sync(~0u, n);
          if (lane == 0) barrier_expect(x_full + 8 * slot, total);
          __syncwarp();
          if (n > 0)
            bulk_copy(shared_address(x_ring) + slot * x_stage + lane * kPiece, p.x + k * 128, n,
                      x_full + 8 * slot);
        } else {
          if (lane == 0) barrier_expect(x_full + 8 * slot, x_stage);
          __syncwarp();
          if (lane < slices)
            tensor_copy(shared_address(x_ring) + slot * x_stage + lane * kPiece, &x_map, 0, 0, k,
                        x_full + 8 * slot);
        }
        if (++slot == stages) {
          slot = 0;
          parity ^= 1;
        }
      }
    return;
  }

  // ---- arithmetic
  if (!p.trigger_late) let_next_kernel_start();
  if (kNorm)
    normalize_row(reinterpret_cast<const float*>(p.x), p.norm_weight, p.norm_eps,
                  p.num_blocks * kBlockCols, num_warps * 32, x_ring,
                  reinterpret_cast<float4*>(x_ring + p.num_blocks * 128),
                  reinterpret_cast<float*>(x_ring + p.num_blocks * 384));
  if (kNorm && p.trigger_late) let_next_kernel_start();
  // Where this lane's row of eight tokens begins in a block of x, and its first 16-byte chunk under
  // the swizzle (pieces are multiples of 1024 bytes). One token: every row of the tile is that one.
  const uint32_t chunk = kSlots == 1 ? lane >> 3 : (lane >> 3) ^ (lane & 7);
  const uint32_t x_lane =
      shared_address(x_ring) + part * kPiece + (kSlots == 1 ? 0 : (lane & 7) * 128);
  struct Operands {
    typename Code::Raw w;
    uint32_t x[kTiles][2][4];
  };
  int slot = 0, parity = 0, visit = 0;
  bool waited = false;
  float2 early = make_float2(0.f, 0.f);  // residual of one token, asked for ahead of the product
  for (int s0 = first; s0 < p.num_strips; s0 += stride, ++visit) {
    const int strip = s0 + group;
    const bool live = strip < p.num_strips;
    float acc[kTiles][4];
#pragma unroll
    for (int c = 0; c < kTiles; ++c)
#pragma unroll
      for (int i = 0; i < 4; ++i) acc[c][i] = 0.f;

    for (int step = 0; step < steps; ++step) {
      const int n = live ? max(0, min(kStageBlocks, span - step * kStageBlocks)) : 0;
      barrier_wait(w_full + 8 * slot, parity);
      if (!kNorm) barrier_wait(x_full + 8 * slot, parity);
      if (kSlots == 1 && step == 0 && part == 0) {
        if (!waited) wait_for_producer();
        waited = true;
        early = early_residual(p.epilogue, p.num_rows, strip);
      }
      const uint8_t* weights = w_ring + (static_cast<size_t>(warp) * stages + slot) * kWeightStage;
      const uint32_t x_row = kNorm ? shared_address(x_ring) + (begin + step * kStageBlocks) * 128
                                   : x_lane + slot * x_stage;
      auto read = [&](Operands& o, int u) {
        o.w = Code::load(weights + u * kBytes, lane);
#pragma unroll
        for (int c = 0; c < kTiles; ++c) {
          const uint32_t row = x_row + (u * kSlots + 8 * c) * 128;
          load_matrices(o.x[c][0], row + chunk * 16);
          load_matrices(o.x[c][1], row + (chunk ^ 4) * 16);
        }
      };
      auto multiply = [&](const Operands& o) {
        const auto w = Code::ready(o.w);
#pragma unroll
        for (int j = 0; j < 4; ++j) {
          uint32_t a[4];
          Code::fragment(w, j, a);
#pragma unroll
          for (int c = 0; c < kTiles; ++c)
            mma_step(acc[c], a, o.x[c][j >> 1][2 * (j & 1)], o.x[c][j >> 1][2 * (j & 1) + 1]);
        }
      };
      if (n == kStageBlocks) {
        // Reads run one block ahead of the arithmetic, where registers allow.
        constexpr int kAhead = kReadAhead ? 1 : 0;
        Operands o[1 + kAhead];
        if (kAhead) read(o[0], 0);
#pragma unroll
        for (int u = 0; u < kStageBlocks; ++u) {
          if (u + kAhead < kStageBlocks) read(o[(u + kAhead) & kAhead], u + kAhead);
          multiply(o[u & kAhead]);
        }
      } else if constexpr (kReadAhead && kSlots == 1) {
        // A short slice is all of a small matrix: the same, in a loop of two.
        Operands even, odd;
        if (n > 0) read(even, 0);
#pragma unroll 1
        for (int u = 0; u + 1 < n; u += 2) {
          read(odd, u + 1);
          multiply(even);
          if (u + 2 < n) read(even, u + 2);
          multiply(odd);
        }
        if (n & 1) multiply(even);
      } else {
        for (int u = 0; u < n; ++u) {
          Operands o;
          read(o, u);
          multiply(o);
        }
      }
      __syncwarp();
      if (lane == 0) {
        if (!kNorm) barrier_arrive(x_empty + 8 * slot);
        request(slot);
      }
      if (++slot == stages) {
        slot = 0;
        parity ^= 1;
      }
    }

    if (slices > 1) {
      // Two buffers: a warp that is a visit ahead has passed the barrier that part 0 reaches only
      // after it has read the other one.
      float4* mine = partial + ((visit & 1) * groups + group) * slices * kTiles * 32;
#pragma unroll
      for (int c = 0; c < kTiles; ++c)
        mine[(part * kTiles + c) * 32 + lane] =
            make_float4(acc[c][0], acc[c][1], acc[c][2], acc[c][3]);
      named_barrier(group + 1, slices * 32);
      if (part != 0) continue;
#pragma unroll
      for (int c = 0; c < kTiles; ++c) {
        const float4 v =
            tree_sum(slices, [&](int q) { return mine[(q * kTiles + c) * 32 + lane]; });
        acc[c][0] = v.x;
        acc[c][1] = v.y;
        acc[c][2] = v.z;
        acc[c][3] = v.w;
      }
    }
    if (!waited) {  // x has arrived, so this returns at once; it orders our reads of the residual
      wait_for_producer();
      waited = true;
    }
    if (live)
      store_strip<kTiles, kSlots == 1>(p.epilogue, p.gated, p.num_rows, strip, 0, p.num_tokens,
                                       &acc[0][0], early);
  }
}

}  // namespace invar::cuda
