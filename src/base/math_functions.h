// The table behind base/math.h: one filled by math.cc, one by math_avx2.cc with FMA instructions.
#pragma once

#include <cstdint>

namespace invar::math {

struct Functions {
  float (*exp_f32)(float);
  float (*tanh_f32)(float);
  double (*exp_f64)(double);
  double (*exp2_f64)(double);
  double (*log_f64)(double);
  double (*pow_f64)(double, double);
  double (*sin_quadrant)(double, int64_t);
};

namespace plain {
extern const Functions kFunctions;
}
#if defined(__x86_64__)
namespace with_fma {
extern const Functions kFunctions;
}
#endif

}  // namespace invar::math
