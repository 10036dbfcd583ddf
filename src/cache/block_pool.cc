// BlockPool: a free list and one count a page.
#include "cache/block_pool.h"

#include <algorithm>

#include "base/check.h"

namespace invar {

BlockPool::BlockPool(int num_pages) : counts_(static_cast<size_t>(num_pages)) {
  free_.reserve(counts_.size());
  reset();
}

void BlockPool::reset() {
  std::fill(counts_.begin(), counts_.end(), 0);
  free_.clear();
  for (int32_t page = num_pages() - 1; page >= 0; --page) free_.push_back(page);
}

std::optional<int32_t> BlockPool::allocate() {
  if (free_.empty()) return std::nullopt;
  const int32_t page = free_.back();
  free_.pop_back();
  counts_[static_cast<size_t>(page)] = 1;
  return page;
}

void BlockPool::retain(int32_t page) {
  INVAR_CHECK(num_users(page) > 0, "page %d is free", page);
  ++counts_[static_cast<size_t>(page)];
}

void BlockPool::release(int32_t page) {
  INVAR_CHECK(num_users(page) > 0, "page %d is free", page);
  if (--counts_[static_cast<size_t>(page)] == 0) free_.push_back(page);
}

int BlockPool::num_users(int32_t page) const {
  INVAR_CHECK(page >= 0 && page < num_pages(), "page %d of %d", page, num_pages());
  return counts_[static_cast<size_t>(page)];
}

}  // namespace invar
