// 12-bit activations (vpdpwssd): instances over packed panels, every kind, 1 to 8 rows. Eight rows
// a tile pay for reading the codes from the panel, so nothing is unpacked beforehand.
#include "backend/cpu/linear_avx512.h"
#include "backend/cpu/linear_operands_avx512.h"

namespace invar::cpu::avx512 {
namespace {

using PanelFn = LinearKernels::PanelFn;

template <PanelKind kKind, int kRows>
void wide_panel(const PanelRun& run) {
  panel<kKind, kRows>(run, run.quads);
}

template <PanelKind kKind>
constexpr PanelFn kPanels[kMaxRows] = {
    wide_panel<kKind, 1>, wide_panel<kKind, 2>, wide_panel<kKind, 3>, wide_panel<kKind, 4>,
    wide_panel<kKind, 5>, wide_panel<kKind, 6>, wide_panel<kKind, 7>, wide_panel<kKind, 8>};

}  // namespace

PanelFn wide_fn(PanelKind kind, int rows) {
  switch (kind) {
#define INVAR_CASE(k) \
  case PanelKind::k:  \
    return kPanels<PanelKind::k>[rows - 1];
    INVAR_QUANTIZED_KINDS(INVAR_CASE)
#undef INVAR_CASE
    default:
      return nullptr;
  }
}

}  // namespace invar::cpu::avx512
