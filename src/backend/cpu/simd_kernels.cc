// Which table belongs to which instruction set.
#include "backend/cpu/simd_kernels.h"

#include "base/check.h"

namespace invar::cpu {

namespace portable {
extern const SimdKernels kSimdKernels;
}
#if defined(__x86_64__)
namespace avx2 {
extern const SimdKernels kSimdKernels;
}
#ifndef INVAR_NO_AVX512
namespace avx512 {
extern const SimdKernels kSimdKernels;
}
#endif
#elif defined(__aarch64__)
namespace neon {
extern const SimdKernels kSimdKernels;
}
#endif

const SimdKernels& simd_kernels(Isa isa) {
#if defined(__x86_64__)
#ifndef INVAR_NO_AVX512
  if (isa == Isa::kAvx512) return avx512::kSimdKernels;
#endif
  // AVX-VNNI adds integer dots only, and nothing here has those.
  if (isa == Isa::kAvx2 || isa == Isa::kAvxVnni) return avx2::kSimdKernels;
#elif defined(__aarch64__)
  if (isa == Isa::kNeon || isa == Isa::kI8mm) return neon::kSimdKernels;
#endif
  INVAR_CHECK(isa == Isa::kPortable, "no kernels for '%s' in this build", isa_name(isa));
  return portable::kSimdKernels;
}

const RowOps& row_ops(Isa isa) { return simd_kernels(isa).row_ops; }

}  // namespace invar::cpu
