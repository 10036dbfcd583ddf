// PageAccess: what a backend offers beside Backend when pages of its KV caches can be taken out and
// put back, so that they may be kept on disk.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"

namespace invar {

class PageAccess {
 public:
  virtual ~PageAccess() = default;
  // Names how the bytes of a page are laid out; another name, other bytes.
  virtual std::string kv_layout() const = 0;
  // A page of every layer, [kv_page_bytes].
  virtual std::vector<uint8_t> read_page(const KvCache& cache, int page) const = 0;
  virtual void write_page(KvCache& cache, int page, std::span<const uint8_t> bytes) = 0;
};

}  // namespace invar
