// Instances of the byte dot (vpdpbusd) over packed panels: every kind, 1 to 8 rows.
#include "backend/cpu/linear_avx512.h"
#include "backend/cpu/linear_operands_avx512.h"

namespace invar::cpu::avx512 {
namespace {

using PanelFn = LinearKernels::PanelFn;

template <PanelKind kKind, int kRows>
void narrow_panel(const PanelRun& run) {
  panel<kKind, kRows>(run, run.bytes);
}

template <PanelKind kKind>
constexpr PanelFn kPanels[kMaxRows] = {
    narrow_panel<kKind, 1>, narrow_panel<kKind, 2>, narrow_panel<kKind, 3>, narrow_panel<kKind, 4>,
    narrow_panel<kKind, 5>, narrow_panel<kKind, 6>, narrow_panel<kKind, 7>, narrow_panel<kKind, 8>};

}  // namespace

PanelFn narrow_fn(PanelKind kind, int rows) {
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
