// AVX2, activations of 16 bits (8-bit codes, and 12-bit activations of any kind): instances over
// packed panels, 1 to 4 rows.
#include "backend/cpu/linear_wide_avx2.h"

#include "backend/cpu/linear_avx2.h"

namespace invar::cpu::avx2 {
namespace {

using PanelFn = LinearKernels::PanelFn;

template <PanelKind kKind>
constexpr PanelFn kPanels[kMaxRows] = {
    wide_panel<WidenedDots, kKind, 1>, wide_panel<WidenedDots, kKind, 2>,
    wide_panel<WidenedDots, kKind, 3>, wide_panel<WidenedDots, kKind, 4>};

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

}  // namespace invar::cpu::avx2
