// Instances of the int16 dot over packed panels: every kind of at most 6 bits, 1 to 4 rows.
#include "backend/cpu/linear_narrow_avx2.h"

#include "backend/cpu/linear_avx2.h"

namespace invar::cpu::avx2 {
namespace {

template <PanelKind kKind>
LinearKernels::PanelFn of(int rows) {
  if constexpr (is_narrow_kind(layout_of(kKind))) {
    static constexpr LinearKernels::PanelFn kPanels[kMaxRows] = {
        narrow_panel<kKind, 1>, narrow_panel<kKind, 2>, narrow_panel<kKind, 3>,
        narrow_panel<kKind, 4>};
    return kPanels[rows - 1];
  }
  return nullptr;
}

}  // namespace

LinearKernels::PanelFn narrow_fn(PanelKind kind, int rows) {
  switch (kind) {
#define INVAR_CASE(k) \
  case PanelKind::k:  \
    return of<PanelKind::k>(rows);
    INVAR_QUANTIZED_KINDS(INVAR_CASE)
#undef INVAR_CASE
    default:
      return nullptr;
  }
}

}  // namespace invar::cpu::avx2
