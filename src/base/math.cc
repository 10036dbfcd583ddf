// The plain build of base/math.h, and the choice between it and math_avx2.cc.
#include "base/math.h"

#include "base/math_functions.h"

#define INVAR_MATH_SET plain
#include "base/math_inl.h"

namespace invar {
namespace {

const math::Functions& functions() {
#if defined(__x86_64__)
  // GCC's and Clang's check includes whether the operating system saves the registers.
  static const math::Functions& chosen =
      __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") ? math::with_fma::kFunctions
                                                                      : math::plain::kFunctions;
  return chosen;
#else
  return math::plain::kFunctions;
#endif
}

}  // namespace

float exp_f32(float x) { return functions().exp_f32(x); }
float tanh_f32(float x) { return functions().tanh_f32(x); }
float log_f32(float x) { return static_cast<float>(functions().log_f64(x)); }
double exp_f64(double x) { return functions().exp_f64(x); }
double exp2_f64(double x) { return functions().exp2_f64(x); }
double log_f64(double x) { return functions().log_f64(x); }
double pow_f64(double x, double y) { return functions().pow_f64(x, y); }
double sin_f64(double x) { return functions().sin_quadrant(x, 0); }
double cos_f64(double x) { return functions().sin_quadrant(x, 1); }

}  // namespace invar
