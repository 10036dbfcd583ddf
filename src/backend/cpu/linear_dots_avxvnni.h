// The dots of AVX-VNNI for linear_wide_avx2.h: four bytes or two 16-bit values a lane, summed in
// int32. Unlike AVX2's byte dot nothing overflows, so every kind takes the same path. Included by
// *_avxvnni.cc only.
#pragma once

#include "backend/cpu/linear_wide_avx2.h"

namespace invar::cpu {
namespace {

// Codes as they are times 8-bit activations (vpdpbusd).
struct ByteDots {
  static const int8_t* values(const PanelRun& run) { return run.bytes; }

  template <int kRows, typename Get>
  INVAR_INLINE void add(__m256i (&sum)[kRows][2], const int8_t* q, int t0, int t1, const Get& get) {
    INVAR_UNROLL for (int t = t0; t < t1; ++t) {
      const __m256i w0 = get(t, 0), w1 = get(t, 1);
      INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
        const __m256i x = broadcast32(q + m * kGroup + t * 4);
        sum[m][0] = _mm256_dpbusd_avx_epi32(sum[m][0], w0, x);
        sum[m][1] = _mm256_dpbusd_avx_epi32(sum[m][1], w1, x);
      }
      keep_order<kRows>(sum);
    }
  }
};

// Codes widened to 16 bits times 12-bit activations (vpdpwssd).
struct DotPairs {
  INVAR_INLINE __m256i add(__m256i sum, __m256i codes, __m256i values) {
    return _mm256_dpwssd_avx_epi32(sum, codes, values);
  }
};
using QuadDots = WidenedDots<DotPairs>;

}  // namespace
}  // namespace invar::cpu
