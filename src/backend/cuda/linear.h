// y = W x on packed matrices: the host side of lin_decode (1 to 32 tokens, mma.sync, bound by the
// bytes of W) and lin_prefill (any number, wgmma). Both give the same bits for a token.
//
// This header is for hosts and tests; kernels are in lin_decode.cuh and lin_prefill.cuh.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "backend/cuda/epilogue.h"
#include "backend/cuda/packed.h"

namespace invar::cuda {

struct LinearArgs {
  PackedMatrix w;           // data on the device
  const void* x = nullptr;  // bf16 [num_tokens, num_cols], 16-byte aligned rows
  int64_t x_stride = 0;     // in elements, a multiple of 8
  int num_tokens = 0;
  Epilogue epilogue;
  // Where not null: one token, x is fp32 and rms_norm(x, norm_weight, norm_eps) is what meets W,
  // bits equal to rms_norm() before. A multiple of 4 columns, at most 8192.
  const float* norm_weight = nullptr;
  float norm_eps = 0;
};

// Knobs that change time and no bit; zero means "choose".
struct LinearSchedule {
  enum class Path : uint8_t { kChoose, kDecode, kPrefill };
  Path path = Path::kChoose;
  int max_warps = 0;          // decode: compute warps of a CTA at most
  int num_stages = 0;         // ring depth at most
  int stage_blocks = 0;       // decode: blocks of a ring stage, few (1) or many (2)
  int max_ctas = 0;           // grid at most
  int prefill_tokens = 0;     // tokens of a tile: 64 or 128
  bool dependent = false;     // programmatic dependent launch
  bool trigger_late = false;  // decode: the next kernel may start once this one's input is there
};

inline constexpr int kMaxDecodeTokens = 32;

void linear(cudaStream_t stream, const LinearArgs& args, const LinearSchedule& schedule = {});

// W of every packed row as bf16 bits, [num_strips * 16, num_cols], decoded by the kernels' codec.
void unpack(cudaStream_t stream, const PackedMatrix& w, void* out_bf16);

// y[t] = row ids[t] of a packed, not gated matrix, times scale, fp32 [num_tokens, num_cols].
void embed(cudaStream_t stream, const PackedMatrix& table, const int32_t* ids, int num_tokens,
           float scale, float* y, int64_t y_stride);

}  // namespace invar::cuda
