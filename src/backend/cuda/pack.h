// Packing checkpoint matrices into A16 on the host (pack.cc). Copying to the device is the
// caller's.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/cuda/packed.h"
#include "base/result.h"
#include "base/threads.h"
#include "tensor/quant.h"

namespace invar::cuda {

struct HostPacked {
  PackedMatrix matrix;  // data points into bytes
  std::unique_ptr<uint8_t[]> bytes;
  size_t num_bytes = 0;
};

// The kind whose decoder reads this format's own codes; kBf16 where there is none.
PackedKind native_kind(const MatrixView& matrix);

struct PackOptions {
  bool gated = false;          // exactly two parts of equal shape: gate, up
  bool head = false;           // one slice
  bool force_bf16 = false;     // for tests: the same W without its codes
  ThreadPool* pool = nullptr;  // null: on the calling thread
};

// Rows of part 0, then of part 1, ... (or gate and up interleaved). Parts of different kinds, or
// with a scale outside kMaxScale, are stored as kBf16. kUnsupported: num_cols no multiple of 64.
Result<HostPacked> pack_matrix(std::span<const MatrixView> parts, const PackOptions& options);

// W of one row under the contract of packed.h, as bf16 bits: the rule that packing and every kernel
// must reproduce. num_cols values.
void weight_row_bf16(const MatrixView& matrix, int64_t row, uint16_t* out);

// W of one packed row, decoded on the host with the kernels' arithmetic, as bf16 bits. `strip_row`
// counts packed rows (strip * 16 + row in strip). For checks; slow.
void unpack_row_bf16(const PackedMatrix& matrix, int64_t strip_row, uint16_t* out);

uint16_t bf16_rn(float value);
uint16_t bf16_rn(double value);

}  // namespace invar::cuda
