// lin_prefill: y[m] = W x[m] for many tokens, on wgmma, with the bits of lin_decode.
//
// A tile is 128 rows of W x kTokens tokens. Two warpgroups own 64 rows each and decode their
// weights in registers while the other one multiplies; a copy warp brings x (128-byte swizzle) and
// blocks of W, one k64 block a stage. The grid is persistent; tiles go in bands of token tiles so
// that the x of a band stays in L2 while the weights stream past.
//
// A slice is one chain of wgmma from zero. Finished slices wait in registers (the lowest level of
// the tree) and in shared memory (the levels above; in registers they spill), so the sum has the
// tree of packed.h.
//
// ptxas serializes every wgmma of a kernel, with only a warning (C7513, C7514, C7518), if registers
// of a chain are touched while one is in flight: codes are therefore read a stage ahead but decoded
// after the wait, and the build turns the warnings into errors (tools/cuda_nvcc.sh).
#pragma once

#include "backend/cuda/codec.cuh"
#include "backend/cuda/device.cuh"
#include "backend/cuda/epilogue.cuh"
#include "backend/cuda/linear_kernels.h"
#include "backend/cuda/wgmma.cuh"

namespace invar::cuda {

struct PrefillParams {
  const uint8_t* w;
  int num_strips, num_blocks, num_slices, num_rows, num_tokens, num_stages;
  bool gated;
  Epilogue epilogue;
};

inline constexpr int kTileStrips = 8;
inline constexpr int kBandTiles = 8;

template <PackedKind kKind, int kTokens>
__global__ void __launch_bounds__(384, 1) lin_prefill(const __grid_constant__ CUtensorMap x_map,
                                                      const __grid_constant__ PrefillParams p) {
  constexpr int kBytes = block_bytes(kKind);
  constexpr int kXStage = kTokens * 128, kStage = kXStage + prefill_weight_bytes(kKind);
  constexpr int kAcc = kTokens / 2;
  // Undecoded weights are the very registers that wgmma reads: nothing may be loaded into them
  // while one is in flight.
  constexpr bool kCodesAreFragments = kKind == PackedKind::kBf16;
  using Code = Codec<kKind>;

  extern __shared__ __align__(128) uint8_t shared_raw[];
  // An offset, not a rounded pointer: the compiler must see that all of it is shared memory.
  uint8_t* shared = shared_raw + (-shared_address(shared_raw) & 1023u);
  const int warp = threadIdx.x >> 5, lane = threadIdx.x & 31, stages = p.num_stages;
  float* parked = reinterpret_cast<float*>(shared + static_cast<size_t>(stages) * kStage);
  uint64_t* barriers =
      reinterpret_cast<uint64_t*>(parked + parked_levels(p.num_slices) * kAcc * 256);
  const uint32_t full = shared_address(barriers), empty = full + 8 * stages;
  const uint32_t base = shared_address(shared);
  const int row_tiles = (p.num_strips + kTileStrips - 1) / kTileStrips;
  const int token_tiles = (p.num_tokens + kTokens - 1) / kTokens, total = row_tiles * token_tiles;

  if (threadIdx.x == 0) {
    prefetch_tensor_map(&x_map);
    for (int i = 0; i < stages; ++i) {
      barrier_init(full + 8 * i, kTileStrips);
      barrier_init(empty + 8 * i, 8);
    }
    barrier_init_fence();
  }
  __syncthreads();
  auto tile_at = [&](int i, int& row_tile, int& token_tile) {
    const int per_band = row_tiles * kBandTiles, band = i / per_band, j = i % per_band;
    const int width = min(kBandTiles, token_tiles - band * kBandTiles);
    row_tile = j / width;
    token_tile = band * kBandTiles + j % width;
  };

  if (warp >= 8) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (warp == 8) {
      wait_for_producer();
      let_next_kernel_start();
      int slot = 0, parity = 1;
      for (int i = blockIdx.x; i < total; i += gridDim.x) {
        int row_tile, token_tile;
        tile_at(i, row_tile, token_tile);
        const int live = min(kTileStrips, p.num_strips - row_tile * kTileStrips);
        for (int kb = 0; kb < p.num_blocks; ++kb) {
          barrier_wait(empty + 8 * slot, parity);
          const uint32_t stage = base + slot * kStage, ready = full + 8 * slot;
          if (lane < kTileStrips) {  // a lane per strip; a strip that does not exist only arrives
            const uint32_t bytes = lane < live ? kBytes : 0;
            barrier_expect(ready, bytes + (lane == 0 ? kXStage : 0));
            if (lane == 0) tensor_copy(stage, &x_map, 0, token_tile * kTokens, kb, ready);
            if (bytes > 0)
              bulk_copy(
                  stage + kXStage + lane * kBytes,
                  p.w + (static_cast<size_t>(row_tile * kTileStrips + lane) * p.num_blocks + kb) *
                            kBytes,
                  bytes, ready);
          }
          __syncwarp();
          if (++slot == stages) {
            slot = 0;
            parity ^= 1;
          }
        }
      }
    }
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    let_next_kernel_start();
    const int slices = p.num_slices;
    int slot = 0, parity = 0;
    float acc[kAcc], level0[kAcc];
    typename Code::Raw raw;
    auto read_codes = [&](int s) {
      raw = Code::load(shared + s * kStage + kXStage + warp * kBytes, lane);
    };
    bool waited = false;
    for (int i = blockIdx.x; i < total; i += gridDim.x) {
      int row_tile, token_tile;
      tile_at(i, row_tile, token_tile);
      barrier_wait(full + 8 * slot, parity);
      read_codes(slot);
      int kb = 0;
      for (int s = 0; s < slices; ++s) {
        const int begin = kb, end = slice_begin(p.num_blocks, slices, s + 1);
        for (; kb < end; ++kb) {
          uint32_t a[4][4];
          {
            const auto w = Code::ready(raw);
#pragma unroll
            for (int j = 0; j < 4; ++j) Code::fragment(w, j, a[j]);
          }
          const uint64_t b = swizzled_descriptor(base + slot * kStage);
          wgmma_fence();
#pragma unroll
          for (int j = 0; j < 4; ++j) wgmma_step(acc, a[j], b + 2 * j, kb > begin || j > 0);
          wgmma_commit();
          const int used = slot;
          if (++slot == stages) {
            slot = 0;
            parity ^= 1;
          }
          const bool more = kb + 1 < p.num_blocks;
          if (more) barrier_wait(full + 8 * slot, parity);
          if (more && !kCodesAreFragments) read_codes(slot);
          wgmma_wait_all();
          // Each warp for itself: that one has finished says nothing of its warpgroup's others.
          __syncwarp();
          if (lane == 0) barrier_arrive(empty + 8 * used);
          if (more && kCodesAreFragments) read_codes(slot);
        }
        // The tree: slice s closes as many levels as s has trailing ones.
        if (slices == 1) break;
        if ((s & 1) == 0) {
#pragma unroll
          for (int v = 0; v < kAcc; ++v) level0[v] = acc[v];
          continue;
        }
#pragma unroll
        for (int v = 0; v < kAcc; ++v) acc[v] = __fadd_rn(level0[v], acc[v]);
        if (slices == 2) break;
        if ((s & 2) == 0) {
#pragma unroll
          for (int v = 0; v < kAcc; ++v) parked[v * 256 + threadIdx.x] = acc[v];
          continue;
        }
#pragma unroll
        for (int v = 0; v < kAcc; ++v) acc[v] = __fadd_rn(parked[v * 256 + threadIdx.x], acc[v]);
        if (slices == 4) break;
        float* upper = parked + kAcc * 256;
        if (s == 3) {
#pragma unroll
          for (int v = 0; v < kAcc; ++v) upper[v * 256 + threadIdx.x] = acc[v];
        } else {
#pragma unroll
          for (int v = 0; v < kAcc; ++v) acc[v] = __fadd_rn(upper[v * 256 + threadIdx.x], acc[v]);
        }
      }
      if (!waited) {
        wait_for_producer();
        waited = true;
      }
      const int strip = row_tile * kTileStrips + warp;
      if (strip < p.num_strips)
        store_strip<kTokens / 8>(p.epilogue, p.gated, p.num_rows, strip, token_tile * kTokens,
                                 p.num_tokens, acc);
    }
  }
}

}  // namespace invar::cuda
