#include "tensor/tensor.h"

#include <algorithm>

namespace invar {
namespace {
constexpr size_t kAlignment = 64;
constexpr size_t kMinBlockBytes = size_t{1} << 20;

size_t align_up(size_t n) { return (n + kAlignment - 1) / kAlignment * kAlignment; }
}  // namespace

Tensor Arena::rows(int64_t num_rows, int64_t num_cols, DType dtype) {
  INVAR_CHECK(num_rows >= 0 && num_cols >= 0, "arena rows %ld x %ld", long{num_rows},
              long{num_cols});
  Tensor t;
  t.data =
      bytes(static_cast<size_t>(num_rows) * static_cast<size_t>(num_cols) * dtype_bytes(dtype));
  t.dtype = dtype;
  t.num_rows = num_rows;
  t.num_cols = t.row_stride = num_cols;
  return t;
}

void* Arena::bytes(size_t num_bytes) {
  num_bytes = align_up(std::max<size_t>(num_bytes, 1));
  while (block_ < blocks_.size() && used_ + num_bytes + kAlignment > blocks_[block_].size) {
    ++block_;
    used_ = 0;
  }
  if (block_ == blocks_.size()) {
    Block block;
    block.size = std::max(num_bytes + kAlignment, kMinBlockBytes);
    block.storage = std::make_unique_for_overwrite<std::byte[]>(block.size);
    blocks_.push_back(std::move(block));
    used_ = 0;
  }
  const auto base = reinterpret_cast<uintptr_t>(blocks_[block_].storage.get());
  const uintptr_t at = align_up(base + used_);
  used_ = at - base + num_bytes;
  return reinterpret_cast<void*>(at);
}

void Arena::reset() {
  // Several blocks mean that the last step outgrew the first one: join them for the next.
  if (blocks_.size() > 1) {
    const size_t total = capacity_bytes();
    blocks_.clear();
    blocks_.push_back({std::make_unique_for_overwrite<std::byte[]>(total), total});
  }
  block_ = used_ = 0;
}

size_t Arena::capacity_bytes() const {
  size_t total = 0;
  for (const Block& block : blocks_) total += block.size;
  return total;
}

}  // namespace invar
