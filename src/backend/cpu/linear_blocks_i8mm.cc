// AArch64 with i8mm: many rows against a panel that was unpacked once.
#include "backend/cpu/linear_instances_arm.h"
#include "backend/cpu/linear_neon.h"

namespace invar::cpu::i8mm {

void unpack_panel(const PanelRun& run, GroupBlock* out) { unpack_any(run, out); }

PanelFn block_fn(PanelKind kind, int bits, int rows) {
  return bits == 8 ? blocks_of<8>(kind, rows) : blocks_of<12>(kind, rows);
}

}  // namespace invar::cpu::i8mm
