// Instances of the byte dot (vpdpbusd) over packed panels: every kind, 1 to 8 rows.
#include "backend/cpu/linear_avx512.h"
#include "backend/cpu/linear_operands_avx512.h"

namespace invar::cpu::avx512 {
namespace {

template <PanelKind kKind, int kRows>
void narrow_panel(const PanelRun& run) {
  panel<kKind, kRows>(run, run.bytes);
}

template <PanelKind kKind>
LinearKernels::PanelFn of(int rows) {
  switch (rows) {
    case 1:
      return narrow_panel<kKind, 1>;
    case 2:
      return narrow_panel<kKind, 2>;
    case 3:
      return narrow_panel<kKind, 3>;
    case 4:
      return narrow_panel<kKind, 4>;
    case 5:
      return narrow_panel<kKind, 5>;
    case 6:
      return narrow_panel<kKind, 6>;
    case 7:
      return narrow_panel<kKind, 7>;
    default:
      return narrow_panel<kKind, 8>;
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
    case PanelKind::kQ8_0:
      return of<PanelKind::kQ8_0>(rows);
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
    case PanelKind::kIQ4_NL:
      return of<PanelKind::kIQ4_NL>(rows);
    case PanelKind::kIQ4_XS:
      return of<PanelKind::kIQ4_XS>(rows);
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
    case PanelKind::kMlx8:
      return of<PanelKind::kMlx8>(rows);
    default:
      return nullptr;
  }
}

}  // namespace invar::cpu::avx512
