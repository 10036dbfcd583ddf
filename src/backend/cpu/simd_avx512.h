// Vec as one zmm register; AVX-512 F, BW, DQ and VL. Contract: simd.h.
#pragma once

// GCC 12 takes the deliberately undefined operands inside its own intrinsics for a mistake.
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic ignored "-Wuninitialized"
#endif

#include <immintrin.h>

#include "backend/cpu/simd.h"

namespace invar::cpu::avx512 {
namespace {

constexpr int kNumAccumulators = 12;

struct Vec {
  __m512 v;
};
struct Mask {
  __mmask16 bits;
};

INVAR_INLINE Vec splat(float x) { return {_mm512_set1_ps(x)}; }
INVAR_INLINE Vec zero() { return {_mm512_setzero_ps()}; }
INVAR_INLINE Vec load(const float* p) { return {_mm512_loadu_ps(p)}; }
INVAR_INLINE void store(float* p, Vec x) { _mm512_storeu_ps(p, x.v); }

INVAR_INLINE uint32_t low_bits(int n) { return n <= 0 ? 0 : n >= 16 ? 0xffff : (1u << n) - 1; }
INVAR_INLINE Mask lanes(int first, int last) {
  return {static_cast<__mmask16>(low_bits(last) & ~low_bits(first))};
}
INVAR_INLINE Vec load_first(const float* p, int n) {
  return {_mm512_maskz_loadu_ps(lanes(0, n).bits, p)};
}
INVAR_INLINE void store_first(float* p, Vec x, int n) {
  _mm512_mask_storeu_ps(p, lanes(0, n).bits, x.v);
}
INVAR_INLINE Vec load_f16(const uint16_t* p) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)))};
}
INVAR_INLINE void store_f16(uint16_t* p, Vec x) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(p),
                      _mm512_cvtps_ph(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

INVAR_INLINE Vec add(Vec a, Vec b) { return {_mm512_add_ps(a.v, b.v)}; }
INVAR_INLINE Vec sub(Vec a, Vec b) { return {_mm512_sub_ps(a.v, b.v)}; }
INVAR_INLINE Vec mul(Vec a, Vec b) { return {_mm512_mul_ps(a.v, b.v)}; }
INVAR_INLINE Vec div(Vec a, Vec b) { return {_mm512_div_ps(a.v, b.v)}; }
INVAR_INLINE Vec fma(Vec a, Vec b, Vec c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
INVAR_INLINE Vec neg_fma(Vec a, Vec b, Vec c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
INVAR_INLINE Vec max(Vec a, Vec b) { return {_mm512_max_ps(a.v, b.v)}; }
INVAR_INLINE Vec abs(Vec a) { return {_mm512_andnot_ps(_mm512_set1_ps(-0.0f), a.v)}; }
INVAR_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  return {_mm512_or_ps(abs(magnitude).v, _mm512_and_ps(sign.v, _mm512_set1_ps(-0.0f)))};
}

INVAR_INLINE Mask less(Vec a, Vec b) { return {_mm512_cmp_ps_mask(a.v, b.v, _CMP_LT_OQ)}; }
INVAR_INLINE Vec select(Mask m, Vec a, Vec b) { return {_mm512_mask_blend_ps(m.bits, b.v, a.v)}; }

INVAR_INLINE Vec round(Vec x) {
  return {_mm512_roundscale_ps(x.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
INVAR_INLINE Vec times_power(Vec x, Vec n) {
  const __m512i shifted = _mm512_slli_epi32(_mm512_cvtps_epi32(n.v), 23);
  return {_mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x.v), shifted))};
}

INVAR_INLINE float sum(Vec x) {
  const __m256 by8 = _mm256_add_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 by4 = _mm_add_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_add_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_add_ss(by2, _mm_movehdup_ps(by2)));
}
INVAR_INLINE float largest(Vec x) {
  const __m256 by8 = _mm256_max_ps(_mm512_castps512_ps256(x.v), _mm512_extractf32x8_ps(x.v, 1));
  const __m128 by4 = _mm_max_ps(_mm256_castps256_ps128(by8), _mm256_extractf128_ps(by8, 1));
  const __m128 by2 = _mm_max_ps(by4, _mm_movehl_ps(by4, by4));
  return _mm_cvtss_f32(_mm_max_ss(by2, _mm_movehdup_ps(by2)));
}

}  // namespace
}  // namespace invar::cpu::avx512
