// AVX-VNNI, 12-bit activations (vpdpwssd): instances over packed panels and over blocks, every
// quantized kind, 1 to 4 rows.
#include "backend/cpu/linear_avxvnni.h"
#include "backend/cpu/linear_dots_avxvnni.h"

namespace invar::cpu::avxvnni {
namespace {

using PanelFn = LinearKernels::PanelFn;

template <PanelKind kKind>
constexpr PanelFn kPanels[kMaxRows] = {
    wide_panel<QuadDots, kKind, 1>, wide_panel<QuadDots, kKind, 2>, wide_panel<QuadDots, kKind, 3>,
    wide_panel<QuadDots, kKind, 4>};
template <int kSubs, bool kAffine>
constexpr PanelFn kBlocks[kMaxRows] = {
    wide_blocks<QuadDots, kSubs, kAffine, 1>, wide_blocks<QuadDots, kSubs, kAffine, 2>,
    wide_blocks<QuadDots, kSubs, kAffine, 3>, wide_blocks<QuadDots, kSubs, kAffine, 4>};

}  // namespace

PanelFn quads_fn(PanelKind kind, int rows) {
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

PanelFn quads_block_fn(PanelKind kind, int rows) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(kind)];
  if (layout.subs == 2)
    return layout.affine ? kBlocks<2, true>[rows - 1] : kBlocks<2, false>[rows - 1];
  return layout.affine ? kBlocks<1, true>[rows - 1] : kBlocks<1, false>[rows - 1];
}

}  // namespace invar::cpu::avxvnni
