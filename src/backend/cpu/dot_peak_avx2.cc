// The dots of avx2, repeated (dot_peak.h).
#include <immintrin.h>

#include "backend/cpu/dot_peak.h"
#include "backend/cpu/dot_peak_inl.h"

namespace invar::cpu::avx2 {

int64_t run_dots(Dot dot, int64_t rounds) {
  if (dot == Dot::kBytes) {
    dot_loop<__m256i>(rounds, [](auto& sum, auto& w, auto& x) __attribute__((always_inline)) {
      // The product must not be computed once for all sums.
      asm volatile("" : "+x"(x));
      return _mm256_add_epi16(sum, _mm256_maddubs_epi16(w, x));
    });
    return rounds * 12 * 32 * 2;
  }
  dot_loop<__m256i>(rounds, [](auto& sum, auto& w, auto& x) __attribute__((always_inline)) {
    asm volatile("" : "+x"(x));
    return _mm256_add_epi32(sum, _mm256_madd_epi16(w, x));
  });
  return rounds * 12 * 16 * 2;
}

}  // namespace invar::cpu::avx2
