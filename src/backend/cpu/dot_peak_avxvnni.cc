// The dots of avxvnni, repeated (dot_peak.h).
#include <immintrin.h>

#include "backend/cpu/dot_peak.h"
#include "backend/cpu/dot_peak_inl.h"

namespace invar::cpu::avxvnni {

int64_t run_dots(Dot dot, int64_t rounds) {
  if (dot == Dot::kBytes) {
    dot_loop<__m256i>(rounds, [](auto& sum, auto& w, auto& x) __attribute__((always_inline)) {
      // The product must not be computed once for all sums.
      asm volatile("" : "+x"(x));
      return _mm256_dpbusd_avx_epi32(sum, w, x);
    });
    return rounds * 12 * 32 * 2;
  }
  dot_loop<__m256i>(rounds, [](auto& sum, auto& w, auto& x) __attribute__((always_inline)) {
    asm volatile("" : "+x"(x));
    return _mm256_dpwssd_avx_epi32(sum, w, x);
  });
  return rounds * 12 * 16 * 2;
}

}  // namespace invar::cpu::avxvnni
