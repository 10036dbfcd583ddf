// Tensor: a view of rows on some device; Arena: where a step's tensors live. No ownership, no
// arithmetic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/check.h"

namespace invar {

enum class DType : uint8_t { kF32, kF16, kBF16 };
inline size_t dtype_bytes(DType dtype) { return dtype == DType::kF32 ? 4 : 2; }

// [num_rows, num_cols], row r begins row_stride elements after row r - 1. The CPU backends use kF32
// throughout; a GPU backend picks its own activation type.
struct Tensor {
  void* data = nullptr;
  DType dtype = DType::kF32;
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  int64_t row_stride = 0;

  // Host tensors of kF32.
  float* row(int64_t r) const { return static_cast<float*>(data) + r * row_stride; }
  float& at(int64_t r, int64_t c) const { return row(r)[c]; }

  bool contiguous() const { return row_stride == num_cols; }
  // Columns [first, first + count) of every row.
  Tensor cols(int64_t first, int64_t count) const {
    INVAR_CHECK(first >= 0 && count >= 0 && first + count <= num_cols, "cols %ld+%ld of %ld",
                long{first}, long{count}, long{num_cols});
    Tensor t = *this;
    t.data = static_cast<char*>(data) + static_cast<size_t>(first) * dtype_bytes(dtype);
    t.num_cols = count;
    return t;
  }
};

// Bump allocator of host memory, 64-byte aligned, kept and reused from step to step. reset() makes
// every tensor from it invalid.
class Arena {
 public:
  Tensor rows(int64_t num_rows, int64_t num_cols, DType dtype = DType::kF32);
  void* bytes(size_t num_bytes);
  void reset();
  size_t capacity_bytes() const;

 private:
  struct Block {
    std::unique_ptr<std::byte[]> storage;
    size_t size = 0;
  };
  std::vector<Block> blocks_;
  size_t block_ = 0;
  size_t used_ = 0;
};

}  // namespace invar
