// AVX-VNNI, 8-bit activations (vpdpbusd): instances over packed panels and over blocks, every
// quantized kind, 1 to 4 rows.
#include "backend/cpu/linear_avxvnni.h"
#include "backend/cpu/linear_dots_avxvnni.h"

namespace invar::cpu::avxvnni {

LinearKernels::PanelFn bytes_fn(PanelKind kind, int rows) {
  return wide_panel_fn<ByteDots>(kind, rows);
}

LinearKernels::PanelFn bytes_block_fn(PanelKind kind, int rows) {
  return wide_blocks_fn<ByteDots>(kind, rows);
}

}  // namespace invar::cpu::avxvnni
