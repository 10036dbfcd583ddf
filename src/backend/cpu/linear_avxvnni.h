// What the AVX-VNNI files of the linear kernels offer each other.
#pragma once

#include "backend/cpu/linear_kernels.h"

namespace invar::cpu::avxvnni {

inline constexpr int kMaxRows = 4;  // 16 registers: 8 sums, two operands, a broadcast, masks

// Any quantized kind: 8-bit activations over packed panels and over blocks.
LinearKernels::PanelFn bytes_fn(PanelKind kind, int rows);
LinearKernels::PanelFn bytes_block_fn(PanelKind kind, int rows);
// The same for 12-bit activations.
LinearKernels::PanelFn quads_fn(PanelKind kind, int rows);
LinearKernels::PanelFn quads_block_fn(PanelKind kind, int rows);

}  // namespace invar::cpu::avxvnni
