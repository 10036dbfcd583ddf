// AVX-VNNI, 12-bit activations (vpdpwssd): instances over packed panels and over blocks, every
// quantized kind, 1 to 4 rows.
#include "backend/cpu/linear_avxvnni.h"
#include "backend/cpu/linear_dots_avxvnni.h"

namespace invar::cpu::avxvnni {

LinearKernels::PanelFn quads_fn(PanelKind kind, int rows) {
  return wide_panel_fn<QuadDots>(kind, rows);
}

LinearKernels::PanelFn quads_block_fn(PanelKind kind, int rows) {
  return wide_blocks_fn<QuadDots>(kind, rows);
}

}  // namespace invar::cpu::avxvnni
