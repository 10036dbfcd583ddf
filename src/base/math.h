// Elementary functions with the same bits everywhere: only +, -, *, /, sqrt and fma of IEEE
// arithmetic, in a fixed order, so that no result depends on which libm a machine has. Vector forms
// (backend/cpu/simd_math_inl.h) repeat the fp32 ones step by step from the constants below.
//
// Errors are the largest found by tests/base/math_test.cc against long double.
#pragma once

#include <cstdint>

namespace invar {

// ---- fp32
// ----------------------------------------------------------------------------------------

// e^x. Relative error 1.3e-7. Below -87 exactly 0 (a masked score is a no-op), above 88.72
// infinity; never a denormal; exp(0) is 1. NaN gives NaN.
float exp_f32(float x);
// tanh x. Relative error 3e-7, odd, exactly +-1 for |x| > 9.02. NaN gives NaN.
float tanh_f32(float x);
// ln x, rounded from log_f64: error 0.5 ulp and a little. 0 gives -infinity, x < 0 and NaN give
// NaN.
float log_f32(float x);

// ---- double
// --------------------------------------------------------------------------------------

// Relative error 4e-16. Below -708 exactly 0, above 709.78 infinity.
double exp_f64(double x);
double exp2_f64(double x);  // below -1022 exactly 0
// Relative error 4e-16, also near 1. Denormals are handled; 0, negatives and NaN as log_f32.
double log_f64(double x);
// x^y for x > 0: exp(y ln x), relative error 3e-16 * (1 + |y ln x|). x <= 0 or NaN gives NaN.
double pow_f64(double x, double y);
// Absolute error 2e-16 for |x| up to 1e9 (three-part reduction); infinity, NaN and |x| > 1e15
// (where the angle means nothing) give NaN.
double sin_f64(double x);
double cos_f64(double x);

// ---- What the vector forms share
// -----------------------------------------------------------------

namespace math {

inline constexpr float kLog2E = 1.44269504f;
// ln 2 in two parts; n * kLn2High is exact for the n that occur (its low 9 bits are zero).
inline constexpr float kLn2High = 0.693145752f;
inline constexpr float kLn2Low = 1.42860677e-6f;
inline constexpr float kExpLow = -87.0f;
inline constexpr float kExpHigh = 88.7228394f;
// Taylor coefficients of degree 7 .. 0.
inline constexpr float kExpPoly[8] = {
    1.98412698e-4f, 1.38888889e-3f, 8.33333333e-3f, 4.16666667e-2f,
    1.66666667e-1f, 0.5f,           1.0f,           1.0f};
// Adding and taking away 1.5 * 2^23 rounds |x| < 2^22 to the nearest integer, ties to even.
inline constexpr float kRoundMagic = 12582912.0f;

// tanh x = x + x^3 P(x^2) for |x| < kTanhSplit, P of degree 5; above, 1 - 2 / (exp(2|x|) + 1).
inline constexpr float kTanhSplit = 0.625f;
inline constexpr float kTanhPoly[6] = {0.00212622713f, -0.00815955549f, 0.0216936804f,
                                       -0.0539455190f, 0.133331969f,    -0.333333313f};

}  // namespace math
}  // namespace invar
