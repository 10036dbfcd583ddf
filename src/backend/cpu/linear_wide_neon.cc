// AArch64 with dotprod: packed panels against 12-bit activations.
#include "backend/cpu/linear_instances_arm.h"
#include "backend/cpu/linear_neon.h"

namespace invar::cpu::neon {

PanelFn wide_fn(PanelKind kind, int rows) { return panel_of<12>(kind, rows); }

}  // namespace invar::cpu::neon
