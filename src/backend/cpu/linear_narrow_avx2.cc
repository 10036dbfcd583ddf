// Instances of the int16 dot over packed panels: every kind of at most 6 bits, 1 to 7 rows. Seven
// rows keep a few sums on the stack, which taking the codes apart once is worth (Zen 3, Q4_1, us a
// row: 4 rows 41, 5 and 6 rows 39, 7 rows 40); eight are slower (53) than twice four.
#include "backend/cpu/linear_narrow_avx2.h"

#include "backend/cpu/linear_avx2.h"

namespace invar::cpu::avx2 {
namespace {

template <PanelKind kKind>
LinearKernels::PanelFn of(int rows) {
  if constexpr (is_narrow_kind(layout_of(kKind))) {
    static constexpr LinearKernels::PanelFn kPanels[] = {
        narrow_panel<kKind, 1>, narrow_panel<kKind, 2>, narrow_panel<kKind, 3>,
        narrow_panel<kKind, 4>, narrow_panel<kKind, 5>, narrow_panel<kKind, 6>,
        narrow_panel<kKind, 7>};
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
