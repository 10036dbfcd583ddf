// What the AVX-512 files of the linear kernels offer each other.
#pragma once

#include "backend/cpu/linear_kernels.h"

namespace invar::cpu::avx512 {

inline constexpr int kMaxRows = 8;

// Any quantized kind against 8-bit activations.
LinearKernels::PanelFn narrow_fn(PanelKind kind, int rows);
// Any quantized kind against 12-bit activations.
LinearKernels::PanelFn wide_fn(PanelKind kind, int rows);

}  // namespace invar::cpu::avx512
