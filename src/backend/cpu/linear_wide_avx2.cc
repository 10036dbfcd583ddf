// AVX2, activations of 16 bits (8-bit codes, and 12-bit activations of any kind): instances over
// packed panels, 1 to 6 rows.
#include "backend/cpu/linear_wide_avx2.h"

#include "backend/cpu/linear_avx2.h"

namespace invar::cpu::avx2 {

LinearKernels::PanelFn wide_fn(PanelKind kind, int rows) {
  return wide_panel_fn<WidenedDots<MaddPairs>>(kind, rows);
}

}  // namespace invar::cpu::avx2
