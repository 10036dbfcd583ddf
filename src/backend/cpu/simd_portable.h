// Vec as 16 floats in memory: any CPU, any compiler. Contract: simd.h.
#pragma once

#include "backend/cpu/simd.h"

namespace invar::cpu::portable {
namespace {

constexpr int kNumAccumulators = 6;

struct Vec {
  float lane[16];
};
struct Mask {
  bool lane[16];
};

// Vec of f(i) for every lane i.
template <typename F>
INVAR_INLINE Vec lanewise(const F& f) {
  Vec y;
  for (int i = 0; i < 16; ++i) y.lane[i] = f(i);
  return y;
}

INVAR_INLINE Vec splat(float x) {
  return lanewise([&](int) { return x; });
}
INVAR_INLINE Vec zero() { return splat(0); }
INVAR_INLINE Vec load(const float* p) {
  return lanewise([&](int i) { return p[i]; });
}
INVAR_INLINE Vec load_first(const float* p, int n) {
  return lanewise([&](int i) { return i < n ? p[i] : 0.0f; });
}
INVAR_INLINE void store(float* p, const Vec& x) {
  for (int i = 0; i < 16; ++i) p[i] = x.lane[i];
}
INVAR_INLINE void store_first(float* p, const Vec& x, int n) {
  for (int i = 0; i < n; ++i) p[i] = x.lane[i];
}

INVAR_INLINE float widen_f16(uint16_t h) {
  const uint32_t sign = static_cast<uint32_t>(h & 0x8000) << 16, rest = h & 0x7fff;
  uint32_t bits;
  if (rest >= 0x7c00) {  // infinity, NaN
    bits = 0x7f800000 | ((rest & 0x3ff) << 13);
  } else if (rest >= 0x400) {
    bits = (rest << 13) + ((127u - 15u) << 23);
  } else {  // denormal: rest * 2^-24, exact
    bits = __builtin_bit_cast(uint32_t, static_cast<float>(rest) * 0x1p-24f);
  }
  return __builtin_bit_cast(float, bits | sign);
}

INVAR_INLINE uint16_t narrow_f16(float x) {
  const uint32_t bits = __builtin_bit_cast(uint32_t, x), rest = bits & 0x7fffffff;
  const uint32_t sign = (bits >> 16) & 0x8000;
  if (rest > 0x7f800000) return static_cast<uint16_t>(sign | 0x7e00 | ((rest >> 13) & 0x3ff));
  if (rest >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // 65520 and more
  if (rest <
      0x38800000) {  // below 2^-14: the sum with 0.5 leaves units of 2^-24, rounded, at the end
    const float shifted = __builtin_bit_cast(float, rest) + 0.5f;
    return static_cast<uint16_t>(sign | (__builtin_bit_cast(uint32_t, shifted) - 0x3f000000));
  }
  const uint32_t odd = (rest >> 13) & 1;
  return static_cast<uint16_t>(sign | ((rest + 0xfff + odd - ((127u - 15u) << 23)) >> 13));
}

INVAR_INLINE Vec load_f16(const uint16_t* p) {
  return lanewise([&](int i) { return widen_f16(p[i]); });
}
INVAR_INLINE void store_f16(uint16_t* p, const Vec& x) {
  for (int i = 0; i < 16; ++i) p[i] = narrow_f16(x.lane[i]);
}

INVAR_INLINE Vec add(const Vec& a, const Vec& b) {
  return lanewise([&](int i) { return a.lane[i] + b.lane[i]; });
}
INVAR_INLINE Vec sub(const Vec& a, const Vec& b) {
  return lanewise([&](int i) { return a.lane[i] - b.lane[i]; });
}
INVAR_INLINE Vec mul(const Vec& a, const Vec& b) {
  return lanewise([&](int i) { return a.lane[i] * b.lane[i]; });
}
INVAR_INLINE Vec div(const Vec& a, const Vec& b) {
  return lanewise([&](int i) { return a.lane[i] / b.lane[i]; });
}
INVAR_INLINE Vec fma(const Vec& a, const Vec& b, const Vec& c) {
  return lanewise([&](int i) { return __builtin_fmaf(a.lane[i], b.lane[i], c.lane[i]); });
}
INVAR_INLINE Vec neg_fma(const Vec& a, const Vec& b, const Vec& c) {
  return lanewise([&](int i) { return __builtin_fmaf(-a.lane[i], b.lane[i], c.lane[i]); });
}
INVAR_INLINE Vec max(const Vec& a, const Vec& b) {
  return lanewise([&](int i) { return a.lane[i] > b.lane[i] ? a.lane[i] : b.lane[i]; });
}
INVAR_INLINE Vec abs(const Vec& a) {
  return lanewise([&](int i) { return __builtin_fabsf(a.lane[i]); });
}
INVAR_INLINE Vec copy_sign(const Vec& magnitude, const Vec& sign) {
  return lanewise([&](int i) { return __builtin_copysignf(magnitude.lane[i], sign.lane[i]); });
}

INVAR_INLINE Mask less(const Vec& a, const Vec& b) {
  Mask m;
  for (int i = 0; i < 16; ++i) m.lane[i] = a.lane[i] < b.lane[i];
  return m;
}
INVAR_INLINE Mask lanes(int first, int last) {
  Mask m;
  for (int i = 0; i < 16; ++i) m.lane[i] = i >= first && i < last;
  return m;
}
INVAR_INLINE Vec select(const Mask& m, const Vec& a, const Vec& b) {
  return lanewise([&](int i) { return m.lane[i] ? a.lane[i] : b.lane[i]; });
}

INVAR_INLINE Vec round(const Vec& x) {
  return lanewise([&](int i) { return (x.lane[i] + math::kRoundMagic) - math::kRoundMagic; });
}
INVAR_INLINE Vec times_power(const Vec& x, const Vec& n) {
  return lanewise([&](int i) {
    // Outside this range (and for NaN) callers replace or ignore the result; the cast would be
    // undefined.
    const bool defined = n.lane[i] > -1000 && n.lane[i] < 1000;
    const uint32_t power = defined ? static_cast<uint32_t>(static_cast<int32_t>(n.lane[i])) : 0;
    return __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, x.lane[i]) + (power << 23));
  });
}

INVAR_INLINE float sum(Vec x) {
  for (int width = 8; width >= 1; width /= 2)
    for (int i = 0; i < width; ++i) x.lane[i] += x.lane[i + width];
  return x.lane[0];
}
INVAR_INLINE float largest(Vec x) {
  for (int width = 8; width >= 1; width /= 2)
    for (int i = 0; i < width; ++i)
      x.lane[i] = x.lane[i] > x.lane[i + width] ? x.lane[i] : x.lane[i + width];
  return x.lane[0];
}

}  // namespace
}  // namespace invar::cpu::portable
