// Vec as two ymm registers; AVX2, FMA and F16C. Contract: simd.h.
#pragma once

#include <immintrin.h>

#include "backend/cpu/simd.h"

namespace invar::cpu::avx2 {
namespace {

constexpr int kNumAccumulators = 6;  // 12 of 16 registers; the others hold K or V and a broadcast

struct Vec {
  __m256 low, high;  // lanes 0..7, 8..15
};
struct Mask {
  __m256 low, high;
};

INVAR_INLINE Vec splat(float x) { return {_mm256_set1_ps(x), _mm256_set1_ps(x)}; }
INVAR_INLINE Vec zero() { return {_mm256_setzero_ps(), _mm256_setzero_ps()}; }
INVAR_INLINE Vec load(const float* p) { return {_mm256_loadu_ps(p), _mm256_loadu_ps(p + 8)}; }
INVAR_INLINE void store(float* p, Vec x) {
  _mm256_storeu_ps(p, x.low);
  _mm256_storeu_ps(p + 8, x.high);
}

// All bits set in lanes i with first <= i < last.
INVAR_INLINE Mask lanes(int first, int last) {
  const __m256i low = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i high = _mm256_setr_epi32(8, 9, 10, 11, 12, 13, 14, 15);
  const __m256i before = _mm256_set1_epi32(first - 1), end = _mm256_set1_epi32(last);
  const auto inside = [&](__m256i index) {
    return _mm256_castsi256_ps(
        _mm256_and_si256(_mm256_cmpgt_epi32(index, before), _mm256_cmpgt_epi32(end, index)));
  };
  return {inside(low), inside(high)};
}
INVAR_INLINE Vec load_first(const float* p, int n) {
  const Mask m = lanes(0, n);
  return {_mm256_maskload_ps(p, _mm256_castps_si256(m.low)),
          _mm256_maskload_ps(p + 8, _mm256_castps_si256(m.high))};
}
INVAR_INLINE void store_first(float* p, Vec x, int n) {
  const Mask m = lanes(0, n);
  _mm256_maskstore_ps(p, _mm256_castps_si256(m.low), x.low);
  _mm256_maskstore_ps(p + 8, _mm256_castps_si256(m.high), x.high);
}
INVAR_INLINE Vec load_f16(const uint16_t* p) {
  return {_mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))),
          _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 8)))};
}
INVAR_INLINE void store_f16(uint16_t* p, Vec x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p),
                   _mm256_cvtps_ph(x.low, _MM_FROUND_TO_NEAREST_INT));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p + 8),
                   _mm256_cvtps_ph(x.high, _MM_FROUND_TO_NEAREST_INT));
}

INVAR_INLINE Vec add(Vec a, Vec b) {
  return {_mm256_add_ps(a.low, b.low), _mm256_add_ps(a.high, b.high)};
}
INVAR_INLINE Vec sub(Vec a, Vec b) {
  return {_mm256_sub_ps(a.low, b.low), _mm256_sub_ps(a.high, b.high)};
}
INVAR_INLINE Vec mul(Vec a, Vec b) {
  return {_mm256_mul_ps(a.low, b.low), _mm256_mul_ps(a.high, b.high)};
}
INVAR_INLINE Vec div(Vec a, Vec b) {
  return {_mm256_div_ps(a.low, b.low), _mm256_div_ps(a.high, b.high)};
}
INVAR_INLINE Vec fma(Vec a, Vec b, Vec c) {
  return {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}
INVAR_INLINE Vec neg_fma(Vec a, Vec b, Vec c) {
  return {_mm256_fnmadd_ps(a.low, b.low, c.low), _mm256_fnmadd_ps(a.high, b.high, c.high)};
}
INVAR_INLINE Vec max(Vec a, Vec b) {
  return {_mm256_max_ps(a.low, b.low), _mm256_max_ps(a.high, b.high)};
}
INVAR_INLINE Vec abs(Vec a) {
  const __m256 sign = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(sign, a.low), _mm256_andnot_ps(sign, a.high)};
}
INVAR_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  const Vec m = abs(magnitude);
  return {_mm256_or_ps(m.low, _mm256_and_ps(sign.low, bit)),
          _mm256_or_ps(m.high, _mm256_and_ps(sign.high, bit))};
}

INVAR_INLINE Mask less(Vec a, Vec b) {
  return {_mm256_cmp_ps(a.low, b.low, _CMP_LT_OQ), _mm256_cmp_ps(a.high, b.high, _CMP_LT_OQ)};
}
INVAR_INLINE Vec select(Mask m, Vec a, Vec b) {
  return {_mm256_blendv_ps(b.low, a.low, m.low), _mm256_blendv_ps(b.high, a.high, m.high)};
}

INVAR_INLINE Vec round(Vec x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.low, kNearest), _mm256_round_ps(x.high, kNearest)};
}
INVAR_INLINE Vec times_power(Vec x, Vec n) {
  const auto one = [](__m256 v, __m256 power) {
    const __m256i shifted = _mm256_slli_epi32(_mm256_cvtps_epi32(power), 23);
    return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(v), shifted));
  };
  return {one(x.low, n.low), one(x.high, n.high)};
}

INVAR_INLINE float sum(Vec x) {
  const __m256 by8 = _mm256_add_ps(x.low, x.high);
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}
INVAR_INLINE float largest(Vec x) {
  const __m256 by8 = _mm256_max_ps(x.low, x.high);
  const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
}

}  // namespace
}  // namespace invar::cpu::avx2
