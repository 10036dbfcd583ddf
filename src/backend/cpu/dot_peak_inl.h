// The loop of dot_peak.h, for any vector: independent sums, enough to hide the latency of a dot.
// add(sum, w, x) is the dot; the including file is compiled for its set.
#pragma once

#include <cstdint>

namespace invar::cpu {
namespace {

template <typename Vector, typename Add>
inline __attribute__((always_inline)) void dot_loop(int64_t rounds, const Add& add) {
  constexpr int kSums = 12;
  Vector sums[kSums] = {}, w = {}, x = {};
  for (int64_t r = 0; r < rounds; ++r) {
    asm volatile("" : "+x"(w), "+x"(x));  // not known to be what it was: no product is kept
#pragma GCC unroll 12
    for (int i = 0; i < kSums; ++i) {
      sums[i] = add(sums[i], w, x);
      asm volatile("" : "+x"(sums[i]));  // each sum is wanted, and each product done anew
    }
  }
}

}  // namespace
}  // namespace invar::cpu
