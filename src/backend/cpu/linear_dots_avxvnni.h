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

// Codes widened to 16 bits times 12-bit activations (vpdpwssd), even bytes and odd bytes apart as
// in WidenedDots.
struct QuadDots {
  static const int16_t* values(const PanelRun& run) { return run.quads; }

  template <int kRows, typename Get>
  INVAR_INLINE void add(__m256i (&sum)[kRows][2], const int16_t* q, int t0, int t1,
                        const Get& get) {
    const __m256i low = _mm256_set1_epi16(255);
    INVAR_UNROLL for (int t = t0; t < t1; ++t) {
      const __m256i w0 = get(t, 0), w1 = get(t, 1);
      INVAR_UNROLL for (int odd = 0; odd < 2; ++odd) {
        const __m256i v0 = odd ? _mm256_srli_epi16(w0, 8) : _mm256_and_si256(w0, low);
        const __m256i v1 = odd ? _mm256_srli_epi16(w1, 8) : _mm256_and_si256(w1, low);
        INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
          const __m256i x = broadcast32(q + m * kGroup + t * 4 + odd * 2);
          sum[m][0] = _mm256_dpwssd_avx_epi32(sum[m][0], v0, x);
          sum[m][1] = _mm256_dpwssd_avx_epi32(sum[m][1], v1, x);
        }
        keep_order<kRows>(sum);
      }
    }
  }
};

}  // namespace
}  // namespace invar::cpu
