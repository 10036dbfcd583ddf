// The int32 dot of AVX2: codes widened to 16 bits times 16-bit activations (vpmaddwd), for 8-bit
// codes and for 12-bit activations. The even and the odd bytes of an operand are one mask and one
// shift away from 16 bits; activations are stored in that order ("quads", panels.h). The zero point
// goes into the start value, -zero * z. Included by *_avx2.cc only.
#pragma once

#include "backend/cpu/linear_operands_avx2.h"

namespace invar::cpu {
namespace {

template <int kRows, typename Get>
INVAR_INLINE void dot_quads(__m256i (&sum)[kRows][2], const int16_t* q, int t0, int t1,
                            const Get& get) {
  const __m256i low = _mm256_set1_epi16(255);
  INVAR_UNROLL for (int t = t0; t < t1; ++t) {
    const __m256i w0 = get(t, 0), w1 = get(t, 1);
    INVAR_UNROLL for (int odd = 0; odd < 2; ++odd) {
      const __m256i v0 = odd ? _mm256_srli_epi16(w0, 8) : _mm256_and_si256(w0, low);
      const __m256i v1 = odd ? _mm256_srli_epi16(w1, 8) : _mm256_and_si256(w1, low);
      INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
        const __m256i x = broadcast32(q + m * kGroup + t * 4 + odd * 2);
        sum[m][0] = _mm256_add_epi32(sum[m][0], _mm256_madd_epi16(v0, x));
        sum[m][1] = _mm256_add_epi32(sum[m][1], _mm256_madd_epi16(v1, x));
      }
      if constexpr (kRows > 1) {
        INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
          INVAR_KEEP_ORDER(sum[m][0]);
          INVAR_KEEP_ORDER(sum[m][1]);
        }
      }
    }
  }
}

// get and scales as in narrow_group; zero: of a symmetric kind.
template <int kSubs, bool kAffine, int kRows, typename Get, typename Scales>
INVAR_INLINE void wide_group(__m256 (&acc)[kRows][2], const GroupSums& sums, int slot, int zero,
                             const int16_t* q, const Get& get, const Scales& scales) {
  INVAR_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
    __m256i sum[kRows][2];
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
      if (kAffine) {
        sum[m][0] = _mm256_setzero_si256();
      } else {
        const int z = kSubs == 2 ? sums.sum_half[sub][slot + m] : sums.sum[slot + m];
        sum[m][0] = _mm256_set1_epi32(-zero * z);
      }
      sum[m][1] = sum[m][0];
    }
    dot_quads<kRows>(sum, q, sub * 4, kSubs == 2 ? sub * 4 + 4 : 8, get);
    __m256 scale[2], bias[2];
    INVAR_UNROLL for (int h = 0; h < 2; ++h) scales(sub, h, scale[h], bias[h]);
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
      const __m256 a = _mm256_broadcast_ss(sums.scale + slot + m);
      __m256 az;
      if (kAffine)
        az = _mm256_broadcast_ss((kSubs == 2 ? sums.scaled_sum_half[sub] : sums.scaled_sum) + slot +
                                 m);
      INVAR_UNROLL for (int h = 0; h < 2; ++h) {
        acc[m][h] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[m][h]), _mm256_mul_ps(scale[h], a), acc[m][h]);
        if (kAffine) acc[m][h] = _mm256_fmadd_ps(bias[h], az, acc[m][h]);
      }
    }
  }
}

}  // namespace
}  // namespace invar::cpu
