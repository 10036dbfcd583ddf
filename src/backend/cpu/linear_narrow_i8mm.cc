// AArch64 with i8mm: packed panels against 8-bit activations.
#include "backend/cpu/linear_instances_arm.h"
#include "backend/cpu/linear_neon.h"

namespace invar::cpu::i8mm {

PanelFn narrow_fn(PanelKind kind, int rows) { return panel_of<8>(kind, rows); }

}  // namespace invar::cpu::i8mm
