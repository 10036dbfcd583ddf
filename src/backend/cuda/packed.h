// Format A16: how the CUDA kernels store a weight matrix, and the arithmetic that the storage
// fixes. Host and device code read this file; packing is in pack.cc, decoding in codec.cuh.
//
// A block is 16 output rows (a strip) x 64 inputs. Its bytes hold, lane by lane, the A fragments of
// four m16n8k16 tensor-core steps: lane 4g + t has rows g and g + 8, columns 2t, 2t + 1, 2t + 8,
// 2t + 9 of each step. wgmma m64nNk16 takes the same fragments, so one file serves decode and
// prefill. The blocks of a strip are contiguous in k: a warp's share is one linear byte range.
//
// Contract (class L, docs/cuda-kernels.md):
//   W[n,k] = bf16_rn(code * scale + bias), rounded once (GGUF kinds: fp32 first, as dequantize_row)
//   A_s    = chain over the 16-wide steps of slice s, ascending, from 0, on the tensor core
//   Y      = balanced tree over A_0 .. A_(S-1) in fp32: ((A0+A1)+(A2+A3))+...
// S depends on the shape of the matrix alone. How W is stored never enters a value: every kind
// gives the bits that kBf16 gives.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define INVAR_HD __host__ __device__
#else
#define INVAR_HD
#endif

namespace invar::cuda {

enum class PackedKind : uint8_t {
  kBf16,     // W itself: any other format, and the fall-back of those below
  kAffine4,  // MLX affine 4-bit, group 64, bf16 scales and biases
  kHalf4,    // 4-bit codes, fp16 scale and bias per 32: Q4_0, Q4_1
  kQ4K,      // 4-bit codes, fp16 d and dmin, 6-bit scale and min per 32
  kQ8,       // 8-bit codes, fp16 scale per 32: Q8_0
  kQ6K,      // 6-bit codes, fp16 d, 8-bit scale per 16
};
inline constexpr int kNumPackedKinds = 6;

inline constexpr int kStripRows = 16;
inline constexpr int kBlockCols = 64;

// Weights are stored times 2^-8 and results multiplied by 2^8, both exact. The decoder turns a code
// into a subnormal number (code * 2^-133 at no cost), so a scale is kept times 2^133 2^-8 and must
// stay below kMaxScale to be finite; a matrix with a larger one is stored as kBf16.
inline constexpr int kWeightExponent = 8;
inline constexpr float kWeightUndo = 256.f;
inline constexpr float kMaxScale = 8.f;

INVAR_HD constexpr int block_bytes(PackedKind kind) {
  switch (kind) {
    case PackedKind::kBf16:
      return 2048;
    case PackedKind::kAffine4:
      return 512 + 64;
    case PackedKind::kHalf4:
      return 512 + 128;
    case PackedKind::kQ4K:
      return 512 + 128;
    case PackedKind::kQ8:
      return 1024 + 64;
    case PackedKind::kQ6K:
      return 512 + 256 + 64 + 32;
  }
  return 0;
}

// Slices of K. Matrices with few strips need many slices to fill the chip (and tensor parallelism
// later splits them so); wide ones take two; the head, measured at 95 % of the read ceiling, one.
// A slice has at least four blocks.
INVAR_HD constexpr int slice_count(int num_strips, int num_blocks, bool head) {
  int slices = head ? 1 : num_strips <= 512 ? 8 : 2;
  while (slices > 1 && num_blocks / slices < 4) slices /= 2;
  return slices;
}

// First block of slice s.
INVAR_HD constexpr int slice_begin(int num_blocks, int num_slices, int s) {
  return static_cast<int>(static_cast<int64_t>(num_blocks) * s / num_slices);
}

// One packed matrix on the device (or, before the copy, on the host).
struct PackedMatrix {
  PackedKind kind = PackedKind::kBf16;
  bool gated = false;  // strip i: rows 8i..8i+7 of gate, then the same rows of up
  int num_rows = 0;    // of y
  int num_cols = 0;    // a multiple of 64
  int num_strips = 0;
  int num_blocks = 0;  // of a strip
  int num_slices = 1;
  const uint8_t* data = nullptr;

  size_t num_bytes() const {
    return static_cast<size_t>(num_strips) * num_blocks * block_bytes(kind);
  }
};

}  // namespace invar::cuda
