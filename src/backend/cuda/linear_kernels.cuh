// Launches of the linear kernels of one kind. Each linear_<kind>.cu instantiates this once.
#pragma once

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/launch.cuh"
#include "backend/cuda/lin_decode.cuh"
#include "backend/cuda/lin_prefill.cuh"

namespace invar::cuda {

// One warp per block; lane 4g + t holds rows g and g + 8.
template <PackedKind kKind>
__global__ void unpack_kernel(PackedMatrix w, __nv_bfloat16* out) {
  const int64_t block = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) >> 5;
  if (block >= int64_t{w.num_strips} * w.num_blocks) return;
  const int lane = threadIdx.x & 31, g = lane >> 2, t = lane & 3;
  const auto ready =
      Codec<kKind>::ready(Codec<kKind>::load(w.data + block * block_bytes(kKind), lane));
  const int64_t row = block / w.num_blocks * kStripRows + g,
                col = block % w.num_blocks * kBlockCols;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint32_t a[4];
    Codec<kKind>::fragment(ready, j, a);
#pragma unroll
    for (int i = 0; i < 4; ++i)
#pragma unroll
      for (int odd = 0; odd < 2; ++odd) {
        const uint32_t bits = (odd ? a[i] & 0xffff0000u : a[i] << 16);
        out[(row + 8 * (i & 1)) * w.num_cols + col + 16 * j + 8 * (i >> 1) + 2 * t + odd] =
            __float2bfloat16_rn(__fmul_rn(__uint_as_float(bits), kWeightUndo));
      }
  }
}

// One warp per token and block of the row; the four lanes whose rows it is store.
template <PackedKind kKind>
__global__ void embed_kernel(PackedMatrix table, const int32_t* ids, int num_tokens, float scale,
                             float* y, int64_t y_stride) {
  wait_for_producer();
  const int64_t index = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) >> 5;
  if (index >= int64_t{num_tokens} * table.num_blocks) return;
  const int lane = threadIdx.x & 31, t = lane & 3;
  const int token = static_cast<int>(index / table.num_blocks);
  const int block = static_cast<int>(index % table.num_blocks), id = ids[token];
  const auto ready = Codec<kKind>::ready(Codec<kKind>::load(
      table.data +
          (static_cast<int64_t>(id / kStripRows) * table.num_blocks + block) * block_bytes(kKind),
      lane));
  const bool upper = id % kStripRows >= 8, mine = (lane >> 2) == id % 8;
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    uint32_t a[4];
    Codec<kKind>::fragment(ready, j, a);
    if (!mine) continue;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t pair = upper ? a[2 * half + 1] : a[2 * half];
      float* to = y + token * y_stride + block * kBlockCols + 16 * j + 8 * half + 2 * t;
      to[0] = __fmul_rn(__fmul_rn(__uint_as_float(pair << 16), kWeightUndo), scale);
      to[1] = __fmul_rn(__fmul_rn(__uint_as_float(pair & 0xffff0000u), kWeightUndo), scale);
    }
  }
}

template <PackedKind kKind, int kSlots, int kStageBlocks>
void launch_decode(cudaStream_t stream, const CUtensorMap& map, const LinearArgs& args,
                   const DecodePlan& plan, const LinearSchedule& schedule) {
  const PackedMatrix& w = args.w;
  const DecodeParams p = {w.data,          static_cast<const uint8_t*>(args.x),
                          w.num_strips,    w.num_blocks,
                          w.num_slices,    __builtin_ctz(static_cast<unsigned>(w.num_slices)),
                          w.num_rows,      args.num_tokens,
                          plan.num_stages, w.gated,
                          args.epilogue,   args.norm_weight,
                          args.norm_eps,   schedule.trigger_late};
  constexpr int kThreads = (decode_warps(kKind, kSlots, kStageBlocks) + 1) * 32;
  const dim3 grid(plan.grid), block((plan.num_warps + 1) * 32);
  if constexpr (kSlots == 1)
    if (args.norm_weight != nullptr)
      return launch(lin_decode<kKind, kSlots, kStageBlocks, kThreads, true>, grid, block,
                    plan.shared_bytes, stream, schedule.dependent, map, p);
  launch(lin_decode<kKind, kSlots, kStageBlocks, kThreads, false>, grid, block, plan.shared_bytes,
         stream, schedule.dependent, map, p);
}

template <PackedKind kKind>
void LinearKernels<kKind>::decode(cudaStream_t stream, const CUtensorMap& map,
                                  const LinearArgs& args, const DecodePlan& plan,
                                  const LinearSchedule& schedule) {
  constexpr int kFew = few_stage_blocks(kKind), kMany = 2 * kFew;
  if (plan.slots == 1 && plan.stage_blocks == kFew)
    launch_decode<kKind, 1, kFew>(stream, map, args, plan, schedule);
  else if (plan.slots == 1)
    launch_decode<kKind, 1, kMany>(stream, map, args, plan, schedule);
  else if (plan.slots == 8 && plan.stage_blocks == kFew)
    launch_decode<kKind, 8, kFew>(stream, map, args, plan, schedule);
  else if (plan.slots == 8)
    launch_decode<kKind, 8, kMany>(stream, map, args, plan, schedule);
  else if (plan.slots == 16 && plan.stage_blocks == kFew)
    launch_decode<kKind, 16, kFew>(stream, map, args, plan, schedule);
  else if (plan.slots == 16)
    launch_decode<kKind, 16, kFew / 2>(stream, map, args, plan, schedule);
  else
    launch_decode<kKind, 32, kFew / 2>(stream, map, args, plan, schedule);
}

template <PackedKind kKind>
void LinearKernels<kKind>::prefill(cudaStream_t stream, const CUtensorMap& map,
                                   const LinearArgs& args, const PrefillPlan& plan,
                                   bool dependent) {
  const PackedMatrix& w = args.w;
  const PrefillParams p = {w.data,          w.num_strips,    w.num_blocks, w.num_slices, w.num_rows,
                           args.num_tokens, plan.num_stages, w.gated,      args.epilogue};
  if (plan.tokens == 64)
    launch(lin_prefill<kKind, 64>, dim3(plan.grid), dim3(384), plan.shared_bytes, stream, dependent,
           map, p);
  else
    launch(lin_prefill<kKind, 128>, dim3(plan.grid), dim3(384), plan.shared_bytes, stream,
           dependent, map, p);
}

template <PackedKind kKind>
void LinearKernels<kKind>::unpack(cudaStream_t stream, const PackedMatrix& w, void* out) {
  const int64_t warps = int64_t{w.num_strips} * w.num_blocks;
  unpack_kernel<kKind><<<static_cast<unsigned>((warps + 7) / 8), 256, 0, stream>>>(
      w, static_cast<__nv_bfloat16*>(out));
  CUDA_CHECK(cudaGetLastError());
}

template <PackedKind kKind>
void LinearKernels<kKind>::embed(cudaStream_t stream, const PackedMatrix& table, const int32_t* ids,
                                 int num_tokens, float scale, float* y, int64_t y_stride) {
  const int64_t warps = int64_t{num_tokens} * table.num_blocks;
  launch(embed_kernel<kKind>, dim3(static_cast<unsigned>((warps + 7) / 8)), dim3(256), 0, stream,
         false, table, ids, num_tokens, scale, y, y_stride);
}

}  // namespace invar::cuda
