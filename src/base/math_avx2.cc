// base/math.h with FMA instructions; math.cc calls this where the CPU has them.
#if defined(__x86_64__)
#include "base/math_functions.h"

#define INVAR_MATH_SET with_fma
#include "base/math_inl.h"
#endif
