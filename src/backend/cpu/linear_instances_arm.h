// From a kind and a number of rows to an instance of linear_groups_arm.h. Included by
// linear_{narrow,wide,blocks}_<set>.cc, each of which asks for its part only.
#pragma once

#include "backend/cpu/linear_groups_arm.h"

namespace invar::cpu {
namespace {

using PanelFn = LinearKernels::PanelFn;

template <PanelKind kKind, int kBits>
constexpr PanelFn kPanels[kMaxRows] = {
    panel<kKind, 1, kBits>, panel<kKind, 2, kBits>, panel<kKind, 3, kBits>, panel<kKind, 4, kBits>,
    panel<kKind, 5, kBits>, panel<kKind, 6, kBits>, panel<kKind, 7, kBits>, panel<kKind, 8, kBits>};

template <int kBits>
PanelFn panel_of(PanelKind kind, int rows) {
  switch (kind) {
#define INVAR_CASE(k) \
  case PanelKind::k:  \
    return kPanels<PanelKind::k, kBits>[rows - 1];
    INVAR_QUANTIZED_KINDS(INVAR_CASE)
#undef INVAR_CASE
    default:
      return nullptr;
  }
}

template <int kSubs, bool kAffine, int kBits>
constexpr PanelFn kBlocks[kMaxRows] = {
    blocks<kSubs, kAffine, 1, kBits>, blocks<kSubs, kAffine, 2, kBits>,
    blocks<kSubs, kAffine, 3, kBits>, blocks<kSubs, kAffine, 4, kBits>,
    blocks<kSubs, kAffine, 5, kBits>, blocks<kSubs, kAffine, 6, kBits>,
    blocks<kSubs, kAffine, 7, kBits>, blocks<kSubs, kAffine, 8, kBits>};

template <int kBits>
PanelFn blocks_of(PanelKind kind, int rows) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(kind)];
  const int i = rows - 1;
  if (layout.subs == 2)
    return layout.affine ? kBlocks<2, true, kBits>[i] : kBlocks<2, false, kBits>[i];
  return layout.affine ? kBlocks<1, true, kBits>[i] : kBlocks<1, false, kBits>[i];
}

INVAR_INLINE void unpack_any(const PanelRun& run, GroupBlock* out) {
  switch (run.kind) {
#define INVAR_CASE(k) \
  case PanelKind::k:  \
    return unpack<PanelKind::k>(run, out);
    INVAR_QUANTIZED_KINDS(INVAR_CASE)
#undef INVAR_CASE
    default:
      return;
  }
}

}  // namespace
}  // namespace invar::cpu
