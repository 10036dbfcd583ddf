// PageSource: pages of keys and values that are in memory no more. What the scheduler asks, which
// decides about pages and knows no disk.
#pragma once

#include <cstdint>

namespace invar {

struct Sequence;

class PageSource {
 public:
  virtual ~PageSource() = default;
  // Whether page `index` of the sequence's tokens may be had: tokens [index * kPagePositions, ...).
  virtual bool has(Sequence& sequence, int64_t index) = 0;
  // Puts it into `page`. False: it is not there after all, and `page` may hold anything.
  virtual bool load(Sequence& sequence, int64_t index, int32_t page) = 0;
};

}  // namespace invar
