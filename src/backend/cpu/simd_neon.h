// Vec as four q registers; AArch64's base instructions. Contract: simd.h.
#pragma once

#include <arm_neon.h>

#include "backend/cpu/simd.h"

namespace invar::cpu::neon {
namespace {

// 20 of 32 registers; the others hold K or V (up to two Vecs) and a broadcast.
constexpr int kNumAccumulators = 5;

struct Vec {
  float32x4_t a, b, c, d;  // lanes 0..3, 4..7, 8..11, 12..15
};
struct Mask {
  uint32x4_t a, b, c, d;
};

INVAR_INLINE Vec splat(float x) {
  const float32x4_t v = vdupq_n_f32(x);
  return {v, v, v, v};
}
INVAR_INLINE Vec zero() { return splat(0); }
INVAR_INLINE Vec load(const float* p) {
  return {vld1q_f32(p), vld1q_f32(p + 4), vld1q_f32(p + 8), vld1q_f32(p + 12)};
}
INVAR_INLINE void store(float* p, Vec x) {
  vst1q_f32(p, x.a);
  vst1q_f32(p + 4, x.b);
  vst1q_f32(p + 8, x.c);
  vst1q_f32(p + 12, x.d);
}
// The end of a row: through memory, since there are no masked loads.
INVAR_INLINE Vec load_first(const float* p, int n) {
  float lanes[16] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
INVAR_INLINE void store_first(float* p, Vec x, int n) {
  float lanes[16];
  store(lanes, x);
  for (int i = 0; i < n; ++i) p[i] = lanes[i];
}

INVAR_INLINE float32x4_t widen(uint16x4_t h) { return vcvt_f32_f16(vreinterpret_f16_u16(h)); }
INVAR_INLINE Vec load_f16(const uint16_t* p) {
  const uint16x8_t low = vld1q_u16(p), high = vld1q_u16(p + 8);
  return {widen(vget_low_u16(low)), widen(vget_high_u16(low)), widen(vget_low_u16(high)),
          widen(vget_high_u16(high))};
}
INVAR_INLINE void store_f16(uint16_t* p, Vec x) {
  vst1_u16(p, vreinterpret_u16_f16(vcvt_f16_f32(x.a)));
  vst1_u16(p + 4, vreinterpret_u16_f16(vcvt_f16_f32(x.b)));
  vst1_u16(p + 8, vreinterpret_u16_f16(vcvt_f16_f32(x.c)));
  vst1_u16(p + 12, vreinterpret_u16_f16(vcvt_f16_f32(x.d)));
}

INVAR_INLINE Vec add(Vec x, Vec y) {
  return {vaddq_f32(x.a, y.a), vaddq_f32(x.b, y.b), vaddq_f32(x.c, y.c), vaddq_f32(x.d, y.d)};
}
INVAR_INLINE Vec sub(Vec x, Vec y) {
  return {vsubq_f32(x.a, y.a), vsubq_f32(x.b, y.b), vsubq_f32(x.c, y.c), vsubq_f32(x.d, y.d)};
}
INVAR_INLINE Vec mul(Vec x, Vec y) {
  return {vmulq_f32(x.a, y.a), vmulq_f32(x.b, y.b), vmulq_f32(x.c, y.c), vmulq_f32(x.d, y.d)};
}
INVAR_INLINE Vec div(Vec x, Vec y) {
  return {vdivq_f32(x.a, y.a), vdivq_f32(x.b, y.b), vdivq_f32(x.c, y.c), vdivq_f32(x.d, y.d)};
}
INVAR_INLINE Vec fma(Vec x, Vec y, Vec z) {
  return {vfmaq_f32(z.a, x.a, y.a), vfmaq_f32(z.b, x.b, y.b), vfmaq_f32(z.c, x.c, y.c),
          vfmaq_f32(z.d, x.d, y.d)};
}
INVAR_INLINE Vec neg_fma(Vec x, Vec y, Vec z) {
  return {vfmsq_f32(z.a, x.a, y.a), vfmsq_f32(z.b, x.b, y.b), vfmsq_f32(z.c, x.c, y.c),
          vfmsq_f32(z.d, x.d, y.d)};
}

// Not FMAX, which has its own mind about NaN and the sign of zero.
INVAR_INLINE float32x4_t larger(float32x4_t x, float32x4_t y) {
  return vbslq_f32(vcgtq_f32(x, y), x, y);
}
INVAR_INLINE Vec max(Vec x, Vec y) {
  return {larger(x.a, y.a), larger(x.b, y.b), larger(x.c, y.c), larger(x.d, y.d)};
}
INVAR_INLINE Vec abs(Vec x) {
  return {vabsq_f32(x.a), vabsq_f32(x.b), vabsq_f32(x.c), vabsq_f32(x.d)};
}
INVAR_INLINE Vec copy_sign(Vec magnitude, Vec sign) {
  const uint32x4_t bit = vdupq_n_u32(0x80000000u);
  return {vbslq_f32(bit, sign.a, magnitude.a), vbslq_f32(bit, sign.b, magnitude.b),
          vbslq_f32(bit, sign.c, magnitude.c), vbslq_f32(bit, sign.d, magnitude.d)};
}

INVAR_INLINE Mask less(Vec x, Vec y) {
  return {vcltq_f32(x.a, y.a), vcltq_f32(x.b, y.b), vcltq_f32(x.c, y.c), vcltq_f32(x.d, y.d)};
}
INVAR_INLINE Mask lanes(int first, int last) {
  const int32_t count[4] = {0, 1, 2, 3};
  const int32x4_t index = vld1q_s32(count);
  const auto inside = [&](int from) __attribute__((always_inline)) {
    return vandq_u32(vcgeq_s32(index, vdupq_n_s32(first - from)),
                     vcltq_s32(index, vdupq_n_s32(last - from)));
  };
  return {inside(0), inside(4), inside(8), inside(12)};
}
INVAR_INLINE Vec select(Mask m, Vec x, Vec y) {
  return {vbslq_f32(m.a, x.a, y.a), vbslq_f32(m.b, x.b, y.b), vbslq_f32(m.c, x.c, y.c),
          vbslq_f32(m.d, x.d, y.d)};
}

INVAR_INLINE Vec round(Vec x) {
  return {vrndnq_f32(x.a), vrndnq_f32(x.b), vrndnq_f32(x.c), vrndnq_f32(x.d)};
}
INVAR_INLINE float32x4_t add_to_exponent(float32x4_t x, float32x4_t n) {
  return vreinterpretq_f32_s32(
      vaddq_s32(vreinterpretq_s32_f32(x), vshlq_n_s32(vcvtnq_s32_f32(n), 23)));
}
INVAR_INLINE Vec times_power(Vec x, Vec n) {
  return {add_to_exponent(x.a, n.a), add_to_exponent(x.b, n.b), add_to_exponent(x.c, n.c),
          add_to_exponent(x.d, n.d)};
}

INVAR_INLINE float sum(Vec x) {
  const float32x4_t by4 = vaddq_f32(vaddq_f32(x.a, x.c), vaddq_f32(x.b, x.d));
  const float32x2_t by2 = vadd_f32(vget_low_f32(by4), vget_high_f32(by4));
  return vpadds_f32(by2);
}
INVAR_INLINE float largest(Vec x) {
  const float32x4_t by4 = larger(larger(x.a, x.c), larger(x.b, x.d));
  const float32x2_t low = vget_low_f32(by4), high = vget_high_f32(by4);
  const float32x2_t by2 = vbsl_f32(vcgt_f32(low, high), low, high);
  const float x0 = vget_lane_f32(by2, 0), x1 = vget_lane_f32(by2, 1);
  return x0 > x1 ? x0 : x1;
}

}  // namespace
}  // namespace invar::cpu::neon
