// The generated Unicode data (tools/make_unicode_tables.py). Only unicode.cc and nfc.cc read it.
#pragma once

#include <cstdint>
#include <span>

namespace invar::unicode {

struct ClassRange {
  uint32_t first, last, value;
};
struct Decomposition {
  uint32_t composed, first, second;  // second 0: a singleton
};
struct Composition {
  uint32_t first, second, composed;
};

std::span<const ClassRange> char_class_ranges();
std::span<const ClassRange> combining_ranges();
std::span<const Decomposition> decompositions();  // sorted by composed
std::span<const Composition> compositions();      // sorted by (first, second)

}  // namespace invar::unicode
