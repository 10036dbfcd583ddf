// The AVX-512 (VNNI) table of linear kernels.
#include "backend/cpu/linear_kernels.h"

namespace invar::cpu {

const LinearKernels& linear_kernels_avx512() { return linear_kernels_avx2(); }

}  // namespace invar::cpu
