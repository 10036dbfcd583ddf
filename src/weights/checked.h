// Checked: the one type in which readers compute sizes and offsets that come from a file. A sum or
// product that does not fit 64 bits, or was made from one, is not ok() and fails every comparison,
// so that a forgotten check turns a file away instead of letting it in.
#pragma once

#include <cstdint>

#include "base/check.h"

namespace invar {

class Checked {
 public:
  constexpr Checked(uint64_t value) : value_(value) {}

  friend constexpr Checked operator+(Checked a, Checked b) {
    Checked sum(0);
    sum.ok_ = !__builtin_add_overflow(a.value_, b.value_, &sum.value_) && a.ok_ && b.ok_;
    return sum;
  }
  friend constexpr Checked operator*(Checked a, Checked b) {
    Checked product(0);
    product.ok_ = !__builtin_mul_overflow(a.value_, b.value_, &product.value_) && a.ok_ && b.ok_;
    return product;
  }
  // The next multiple of a power of two.
  constexpr Checked aligned(uint64_t alignment) const {
    Checked up = *this + Checked(alignment - 1);
    up.value_ &= ~(alignment - 1);
    return up;
  }

  constexpr bool ok() const { return ok_; }
  constexpr bool at_most(uint64_t limit) const { return ok_ && value_ <= limit; }
  constexpr bool equals(uint64_t value) const { return ok_ && value_ == value; }

  // Only when ok().
  uint64_t value() const {
    INVAR_CHECK(ok_, "a size from a file was used before it was checked");
    return value_;
  }

 private:
  uint64_t value_ = 0;
  bool ok_ = true;
};

}  // namespace invar
