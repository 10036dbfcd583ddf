// base/math.h against the long double functions of libm (an independent implementation with 11 more
// bits), and both builds of it against each other.
#include "base/math.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "base/math_functions.h"

namespace invar {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

template <typename T>
long double relative_error(T got, long double want) {
  return std::fabs((static_cast<long double>(got) - want) / want);
}

// Calls f(x) for `count` numbers that cover [low, high] evenly, off any grid of round numbers.
template <typename F>
void sweep(double low, double high, int count, const F& f) {
  std::mt19937_64 random(7);
  std::uniform_real_distribution<double> inside(0, 1);
  for (int i = 0; i < count; ++i) f(low + (high - low) * (i + inside(random)) / count);
}

TEST(Math, ExpF32IsNearLongDouble) {
  long double worst = 0;
  sweep(-87, 88.72, 400'000, [&](double d) {
    const float x = static_cast<float>(d);
    worst = std::max(worst, relative_error(exp_f32(x), std::exp(static_cast<long double>(x))));
  });
  sweep(-1, 1, 200'000, [&](double d) {
    const float x = static_cast<float>(d);
    worst = std::max(worst, relative_error(exp_f32(x), std::exp(static_cast<long double>(x))));
  });
  EXPECT_LT(worst, 1.3e-7L);
  RecordProperty("worst", std::to_string(static_cast<double>(worst) * 1e9));
}

TEST(Math, ExpF32AtTheEdges) {
  EXPECT_EQ(exp_f32(0.0f), 1.0f);
  EXPECT_EQ(exp_f32(-0.0f), 1.0f);
  EXPECT_GT(exp_f32(-87.0f), 0.0f);
  EXPECT_GE(exp_f32(-87.0f), std::numeric_limits<float>::min());  // never a denormal
  EXPECT_EQ(exp_f32(std::nextafter(-87.0f, -100.0f)), 0.0f);
  EXPECT_FALSE(std::signbit(exp_f32(-1e30f)));
  EXPECT_EQ(exp_f32(-kInf), 0.0f);
  EXPECT_TRUE(std::isfinite(exp_f32(88.7228f)));
  EXPECT_EQ(exp_f32(88.73f), kInf);
  EXPECT_EQ(exp_f32(kInf), kInf);
  EXPECT_TRUE(std::isnan(exp_f32(kNan)));
}

TEST(Math, TanhF32IsNearLongDouble) {
  long double worst = 0;
  const auto check = [&](double d) {
    const float x = static_cast<float>(d);
    worst = std::max(worst, relative_error(tanh_f32(x), std::tanh(static_cast<long double>(x))));
    EXPECT_EQ(tanh_f32(-x), -tanh_f32(x));
  };
  sweep(1e-6, 0.7, 200'000, check);
  sweep(0.6, 12, 200'000, check);
  EXPECT_LT(worst, 3e-7L);
  EXPECT_EQ(tanh_f32(1e-20f), 1e-20f);
  EXPECT_EQ(tanh_f32(0.0f), 0.0f);
  EXPECT_EQ(tanh_f32(9.1f), 1.0f);
  EXPECT_EQ(tanh_f32(-kInf), -1.0f);
  EXPECT_EQ(tanh_f32(kInf), 1.0f);
  EXPECT_TRUE(std::isnan(tanh_f32(kNan)));
}

TEST(Math, ExpF64IsNearLongDouble) {
  long double worst = 0, worst2 = 0;
  sweep(-708, 709.78, 200'000, [&](double x) {
    worst = std::max(worst, relative_error(exp_f64(x), std::exp(static_cast<long double>(x))));
  });
  sweep(-1021, 1023.99, 200'000, [&](double x) {
    worst2 = std::max(worst2, relative_error(exp2_f64(x), std::exp2(static_cast<long double>(x))));
  });
  EXPECT_LT(worst, 4e-16L);
  EXPECT_LT(worst2, 4e-16L);
  EXPECT_EQ(exp_f64(0), 1.0);
  EXPECT_EQ(exp_f64(-709), 0.0);
  EXPECT_EQ(exp_f64(710), static_cast<double>(kInf));
  EXPECT_TRUE(std::isnan(exp_f64(kNan)));
  for (int n = -1022; n < 1024; ++n) EXPECT_EQ(exp2_f64(n), std::ldexp(1.0, n));
  EXPECT_EQ(exp2_f64(1024), static_cast<double>(kInf));
}

TEST(Math, LogIsNearLongDouble) {
  long double worst = 0;
  const auto check = [&](double x) {
    if (x == 1) return;
    worst = std::max(worst, relative_error(log_f64(x), std::log(static_cast<long double>(x))));
  };
  sweep(0.5, 2, 300'000, check);
  sweep(0.999, 1.001, 100'000, check);
  sweep(-740, 709, 100'000, [&](double e) { check(std::exp(e)); });  // denormals too
  EXPECT_LT(worst, 4e-16L);
  EXPECT_EQ(log_f64(1), 0.0);
  EXPECT_EQ(log_f64(0), -std::numeric_limits<double>::infinity());
  EXPECT_TRUE(std::isnan(log_f64(-1)));
  EXPECT_TRUE(std::isnan(log_f64(kNan)));
  EXPECT_EQ(log_f64(kInf), static_cast<double>(kInf));
  EXPECT_EQ(log_f32(2.0f), 0.693147182f);
  EXPECT_EQ(log_f32(0x1p-149f), static_cast<float>(-149 * std::log(2.0L)));
}

TEST(Math, PowGivesRopeFrequencies) {
  long double worst = 0;
  for (double theta : {1e4, 5e5, 1e6, 1e7}) {
    for (int dim : {64, 128, 256}) {
      for (int i = 0; i < dim / 2; ++i) {
        const double y = -2.0 * i / dim;
        worst = std::max(worst,
                         relative_error(pow_f64(theta, y), std::pow(static_cast<long double>(theta),
                                                                    static_cast<long double>(y))));
      }
    }
  }
  EXPECT_LT(worst, 5e-15L);
  EXPECT_EQ(pow_f64(10000, 0), 1.0);
  EXPECT_TRUE(std::isnan(pow_f64(-1, 2)));
}

TEST(Math, SinAndCosAreNearLongDouble) {
  long double worst = 0;
  const auto check = [&](double x) {
    worst = std::max(worst, std::fabs(sin_f64(x) - std::sin(static_cast<long double>(x))));
    worst = std::max(worst, std::fabs(cos_f64(x) - std::cos(static_cast<long double>(x))));
  };
  for (double limit : {1.0, 100.0, 1e4, 1e6, 1e9}) sweep(-limit, limit, 50'000, check);
  for (int i = 0; i < 1'100'000; i += 97) check(i);                 // positions
  for (int i = 0; i < 200'000; ++i) check(i * 1.5707963267948966);  // beside the zeros
  EXPECT_LT(worst, 2.3e-16L);
  EXPECT_EQ(sin_f64(0), 0.0);
  EXPECT_EQ(cos_f64(0), 1.0);
  EXPECT_TRUE(std::isnan(sin_f64(kInf)));
  EXPECT_TRUE(std::isnan(cos_f64(kNan)));
}

#if defined(__x86_64__)
TEST(Math, BothBuildsGiveTheSameBits) {
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma")) {
    GTEST_SKIP() << "not run: this CPU has no FMA, so there is one build only";
  }
  const math::Functions &a = math::plain::kFunctions, &b = math::with_fma::kFunctions;
  const auto same = [](auto x, auto y) { return std::memcmp(&x, &y, sizeof x) == 0; };
  int differing = 0;
  sweep(-100, 100, 100'000, [&](double x) {
    const float f = static_cast<float>(x);
    const double positive = std::exp(x * 5);
    differing += !same(a.exp_f32(f), b.exp_f32(f));
    differing += !same(a.tanh_f32(f * 0.1f), b.tanh_f32(f * 0.1f));
    differing += !same(a.exp_f64(x * 7), b.exp_f64(x * 7));
    differing += !same(a.exp2_f64(x * 10), b.exp2_f64(x * 10));
    differing += !same(a.log_f64(positive), b.log_f64(positive));
    differing += !same(a.pow_f64(positive, 0.3), b.pow_f64(positive, 0.3));
    differing += !same(a.sin_quadrant(x * 1e4, 0), b.sin_quadrant(x * 1e4, 0));
    differing += !same(a.sin_quadrant(x * 1e4, 1), b.sin_quadrant(x * 1e4, 1));
  });
  EXPECT_EQ(differing, 0);
}
#endif

}  // namespace
}  // namespace invar
