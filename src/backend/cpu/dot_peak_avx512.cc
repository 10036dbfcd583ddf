// The dots of avx512, repeated (dot_peak.h).
#include <immintrin.h>

#include "backend/cpu/dot_peak.h"
#include "backend/cpu/dot_peak_inl.h"

namespace invar::cpu::avx512 {

int64_t run_dots(Dot dot, int64_t rounds) {
  if (dot == Dot::kBytes) {
    dot_loop<__m512i>(rounds, [](auto& sum, auto& w, auto& x) __attribute__((always_inline)) {
      // The product must not be computed once for all sums.
      asm volatile("" : "+x"(x));
      return _mm512_dpbusd_epi32(sum, w, x);
    });
    return rounds * 12 * 64 * 2;
  }
  dot_loop<__m512i>(rounds, [](auto& sum, auto& w, auto& x) __attribute__((always_inline)) {
    asm volatile("" : "+x"(x));
    return _mm512_dpwssd_epi32(sum, w, x);
  });
  return rounds * 12 * 32 * 2;
}

}  // namespace invar::cpu::avx512
