// BlockPool: which pages of the KvCache are in use, and by how many. Counted, so that sequences
// with a common beginning can share full pages. Bookkeeping only: the memory is the backend's.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

namespace invar {

class BlockPool {
 public:
  explicit BlockPool(int num_pages);

  int num_pages() const { return static_cast<int>(counts_.size()); }
  int num_free() const { return static_cast<int>(free_.size()); }

  // A page with one user, or nothing when all are in use.
  std::optional<int32_t> allocate();
  // One more, one less user; the last one frees the page.
  void retain(int32_t page);
  void release(int32_t page);
  int num_users(int32_t page) const;
  // All pages are free again, whoever used them. Allocates nothing.
  void reset();

 private:
  std::vector<int32_t> counts_;
  std::vector<int32_t> free_;  // last freed is first used: it is still warm in the CPU's caches
};

}  // namespace invar
