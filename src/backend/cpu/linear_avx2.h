// What the AVX2 files of the linear kernels offer each other and the larger sets.
#pragma once

#include "backend/cpu/linear_kernels.h"

namespace invar::cpu::avx2 {

// 12 sums of 8 lanes, two operands, a broadcast and a product are 16 registers; the float
// accumulators, used once a group, wait on the stack.
inline constexpr int kMaxRows = 6;

bool quantize_row(const float* x, int64_t num_groups, int bits, const ActivationTile& tile,
                  int slot);

// Codes of at most 6 bits against 8-bit activations; null for other kinds.
LinearKernels::PanelFn narrow_fn(PanelKind kind, int rows);
// Any quantized kind against `quads`.
LinearKernels::PanelFn wide_fn(PanelKind kind, int rows);

bool is_narrow(PanelKind kind, int bits);
void unpack_panel(const PanelRun& run, GroupBlock* out);
LinearKernels::FloatFn float_fn(PanelKind kind, int rows);
LinearKernels::PanelFn block_fn(PanelKind kind, int bits, int rows);

}  // namespace invar::cpu::avx2
