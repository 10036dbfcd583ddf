// Instances of the int16 dot over packed panels: every kind of at most 6 bits, 1 to 4 rows.
#include "backend/cpu/linear_narrow_avx2.h"

#include "backend/cpu/linear_avx2.h"

namespace invar::cpu::avx2 {
namespace {

template <PanelKind kKind>
LinearKernels::PanelFn of(int rows) {
  switch (rows) {
    case 1:
      return narrow_panel<kKind, 1>;
    case 2:
      return narrow_panel<kKind, 2>;
    case 3:
      return narrow_panel<kKind, 3>;
    default:
      return narrow_panel<kKind, 4>;
  }
}

}  // namespace

LinearKernels::PanelFn narrow_fn(PanelKind kind, int rows) {
  switch (kind) {
    case PanelKind::kQ4_0:
      return of<PanelKind::kQ4_0>(rows);
    case PanelKind::kQ4_1:
      return of<PanelKind::kQ4_1>(rows);
    case PanelKind::kQ5_0:
      return of<PanelKind::kQ5_0>(rows);
    case PanelKind::kQ5_1:
      return of<PanelKind::kQ5_1>(rows);
    case PanelKind::kQ2_K:
      return of<PanelKind::kQ2_K>(rows);
    case PanelKind::kQ3_K:
      return of<PanelKind::kQ3_K>(rows);
    case PanelKind::kQ4_K:
      return of<PanelKind::kQ4_K>(rows);
    case PanelKind::kQ5_K:
      return of<PanelKind::kQ5_K>(rows);
    case PanelKind::kQ6_K:
      return of<PanelKind::kQ6_K>(rows);
    case PanelKind::kMXFP4:
      return of<PanelKind::kMXFP4>(rows);
    case PanelKind::kMlx2:
      return of<PanelKind::kMlx2>(rows);
    case PanelKind::kMlx3:
      return of<PanelKind::kMlx3>(rows);
    case PanelKind::kMlx4:
      return of<PanelKind::kMlx4>(rows);
    case PanelKind::kMlx5:
      return of<PanelKind::kMlx5>(rows);
    case PanelKind::kMlx6:
      return of<PanelKind::kMlx6>(rows);
    default:
      return nullptr;
  }
}

}  // namespace invar::cpu::avx2
