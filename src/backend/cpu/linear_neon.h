// What the files of the AArch64 linear kernels offer each other: `neon` (dotprod) and `i8mm` have
// the same functions, of which quantize_row and float_fn stand once.
#pragma once

#include "backend/cpu/linear_kernels.h"

namespace invar::cpu {

namespace neon {

// 12-bit values q = 128 h + l, -64 <= l < 64, are written to the slot's 64 bytes of `quads` as 32
// bytes l and 32 bytes h. Of the sums, those for int16 accumulators (`start`) are not written.
bool quantize_row(const float* x, int64_t num_groups, int bits, const ActivationTile& tile,
                  int slot);
LinearKernels::FloatFn float_fn(PanelKind kind, int rows);

// Any quantized kind against 8-bit (narrow) or 12-bit (wide) activations.
LinearKernels::PanelFn narrow_fn(PanelKind kind, int rows);
LinearKernels::PanelFn wide_fn(PanelKind kind, int rows);

void unpack_panel(const PanelRun& run, GroupBlock* out);
LinearKernels::PanelFn block_fn(PanelKind kind, int bits, int rows);

}  // namespace neon

namespace i8mm {

LinearKernels::PanelFn narrow_fn(PanelKind kind, int rows);
LinearKernels::PanelFn wide_fn(PanelKind kind, int rows);
void unpack_panel(const PanelRun& run, GroupBlock* out);
LinearKernels::PanelFn block_fn(PanelKind kind, int bits, int rows);

}  // namespace i8mm
}  // namespace invar::cpu
