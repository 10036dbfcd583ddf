// The bodies of base/math.h, compiled twice: plainly (math.cc) and with FMA instructions
// (math_avx2.cc), where std::fma would otherwise be a call. Both give the same bits. INVAR_MATH_SET
// names the namespace, so that no inline function of one build is linked into the other; for the
// same reason nothing of the standard library's inline functions is used here.
#include <cstdint>

#include "base/math.h"

namespace invar::math::INVAR_MATH_SET {
namespace {

constexpr double kInfinity = __builtin_inf();
constexpr double kNan = __builtin_nan("");

constexpr double kLn2 = 0x1.62e42fefa39efp-1;
constexpr double kLn2Hi = 0x1.62e42fefa3000p-1;  // 41 bits: n * kLn2Hi is exact for |n| < 2^12
constexpr double kLn2Lo = 0x1.3de6af278ece6p-42;
constexpr double kLog2EDouble = 0x1.71547652b82fep+0;
constexpr double kRoundDouble = 6755399441055744.0;  // 1.5 * 2^52, as kRoundMagic
// pi / 2 to 106 bits. n * kHalfPiHi - x is exact inside an fma, so two parts do.
constexpr double kHalfPiHi = 0x1.921fb54442d18p+0;
constexpr double kHalfPiLo = 0x1.1a62633145c07p-54;
constexpr double kTwoOverPi = 0x1.45f306dc9c883p-1;
constexpr double kMaxAngle = 1e15;

inline float fma32(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
inline double fma64(double a, double b, double c) { return __builtin_fma(a, b, c); }

inline float exp_f32(float x) {
  if (x != x) return x;
  if (x < kExpLow) return 0;
  if (x > kExpHigh) return static_cast<float>(kInfinity);
  const float n = (x * kLog2E + kRoundMagic) - kRoundMagic;
  float r = fma32(-n, kLn2High, x);
  r = fma32(-n, kLn2Low, r);
  float p = kExpPoly[0];
  for (int i = 1; i < 8; ++i) p = fma32(p, r, kExpPoly[i]);
  const int32_t bits =
      __builtin_bit_cast(int32_t, p) + static_cast<int32_t>(n) * (int32_t{1} << 23);
  return __builtin_bit_cast(float, bits);
}

inline float tanh_f32(float x) {
  const float a = x < 0 ? -x : x;
  if (a < kTanhSplit) {
    const float t = x * x;
    float p = kTanhPoly[0];
    for (int i = 1; i < 6; ++i) p = fma32(p, t, kTanhPoly[i]);
    return fma32(p, t * x, x);
  }
  const float y = 1.0f - 2.0f / (exp_f32(a + a) + 1.0f);
  return x < 0 ? -y : y;
}

// 2^n for n in [-1022, 1023].
inline double power_of_two(int64_t n) {
  return __builtin_bit_cast(double, (n + 1023) * (int64_t{1} << 52));
}

// e^(r + n ln 2) for |r| <= 0.35. The power is applied in halves because n can be 1024.
inline double exp_core(double r, double n) {
  // 1 / k!, k = 13 .. 0
  constexpr double kPoly[] = {1.0 / 6227020800.0,
                              1.0 / 479001600.0,
                              1.0 / 39916800.0,
                              1.0 / 3628800.0,
                              1.0 / 362880.0,
                              1.0 / 40320.0,
                              1.0 / 5040.0,
                              1.0 / 720.0,
                              1.0 / 120.0,
                              1.0 / 24.0,
                              1.0 / 6.0,
                              0.5,
                              1.0,
                              1.0};
  double p = kPoly[0];
  for (int i = 1; i < 14; ++i) p = fma64(p, r, kPoly[i]);
  const int64_t whole = static_cast<int64_t>(n), half = whole / 2;
  return p * power_of_two(half) * power_of_two(whole - half);
}

inline double exp_f64(double x) {
  if (x != x) return x;
  if (x < -708.0) return 0;
  if (x > 709.782712893384) return kInfinity;
  const double n = (x * kLog2EDouble + kRoundDouble) - kRoundDouble;
  double r = fma64(-n, kLn2Hi, x);
  r = fma64(-n, kLn2Lo, r);
  return exp_core(r, n);
}

inline double exp2_f64(double x) {
  if (x != x) return x;
  if (x < -1022.0) return 0;
  if (x >= 1024.0) return kInfinity;
  const double n = (x + kRoundDouble) - kRoundDouble;
  return exp_core((x - n) * kLn2, n);
}

inline double log_f64(double x) {
  if (x != x || x < 0) return kNan;
  if (x == 0) return -kInfinity;
  if (x == kInfinity) return x;
  int64_t exponent = 0;
  if (x < 0x1p-1022) {
    x *= 0x1p54;
    exponent = -54;
  }
  // x = m * 2^exponent with m in [sqrt(1/2), sqrt(2)).
  const int64_t bits = __builtin_bit_cast(int64_t, x);
  exponent += (bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & ((int64_t{1} << 52) - 1)) | (int64_t{1023} << 52));
  if (m >= 0x1.6a09e667f3bcdp+0) {
    m *= 0.5;
    exponent += 1;
  }
  // ln m = 2 atanh s = 2s + 2s^3 (1/3 + s^2/5 + ...), s = f / (2 + f), f = m - 1 exact. Written as
  // f - (f^2/2 - s (f^2/2 + R)), which rounds the large part, f, only once.
  const double f = m - 1.0, s = f / (2.0 + f), z = s * s;
  constexpr double kPoly[] = {2.0 / 23, 2.0 / 21, 2.0 / 19, 2.0 / 17, 2.0 / 15, 2.0 / 13,
                              2.0 / 11, 2.0 / 9,  2.0 / 7,  2.0 / 5,  2.0 / 3};
  double p = kPoly[0];
  for (int i = 1; i < 11; ++i) p = fma64(p, z, kPoly[i]);
  const double half_square = 0.5 * f * f, e = static_cast<double>(exponent);
  const double low = fma64(e, kLn2Lo, s * (half_square + z * p));
  return fma64(e, kLn2Hi, f - (half_square - low));
}

inline double pow_f64(double x, double y) {
  if (!(x > 0)) return kNan;
  return exp_f64(y * log_f64(x));
}

// sin(x) for quarter_turns = 0, cos(x) for 1.
inline double sin_quadrant(double x, int64_t quarter_turns) {
  if (!(x <= kMaxAngle && x >= -kMaxAngle)) return kNan;
  const double n = (x * kTwoOverPi + kRoundDouble) - kRoundDouble;
  double r = fma64(-n, kHalfPiHi, x);
  r = fma64(-n, kHalfPiLo, r);
  const double t = r * r;
  const int64_t quadrant = (static_cast<int64_t>(n) + quarter_turns) & 3;
  double y;
  if (quadrant & 1) {  // cos r
    constexpr double kPoly[] = {
        1.0 / 20922789888000.0, -1.0 / 87178291200.0, 1.0 / 479001600.0, -1.0 / 3628800.0,
        1.0 / 40320.0,          -1.0 / 720.0,         1.0 / 24.0};
    double p = kPoly[0];
    for (int i = 1; i < 7; ++i) p = fma64(p, t, kPoly[i]);
    y = fma64(t * t, p, fma64(-0.5, t, 1.0));
  } else {  // sin r
    constexpr double kPoly[] = {
        1.0 / 355687428096000.0, -1.0 / 1307674368000.0, 1.0 / 6227020800.0, -1.0 / 39916800.0,
        1.0 / 362880.0,          -1.0 / 5040.0,          1.0 / 120.0,        -1.0 / 6.0};
    double p = kPoly[0];
    for (int i = 1; i < 8; ++i) p = fma64(p, t, kPoly[i]);
    y = fma64(r * t, p, r);
  }
  return quadrant & 2 ? -y : y;
}

}  // namespace

extern const Functions kFunctions = {
    exp_f32, tanh_f32, exp_f64, exp2_f64, log_f64, pow_f64, sin_quadrant,
};

}  // namespace invar::math::INVAR_MATH_SET
