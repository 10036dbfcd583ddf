// A packed panel as every instruction set walks it: where the codes of each step and group stand.
// Included by files of one instruction set only; everything is local to the file that includes it,
// because the same function compiled for another set must never be linked in its place.
#pragma once

#include "backend/cpu/linear_kernels.h"

#define INVAR_INLINE static inline __attribute__((always_inline))
#define INVAR_UNROLL _Pragma("GCC unroll 8")

namespace invar::cpu {
namespace {

constexpr PanelLayout layout_of(PanelKind kind) { return kPanelLayouts[static_cast<int>(kind)]; }

// Where a group's codes stand.
struct Codes {
  const uint8_t* main;
  const uint8_t* extra;
};

// The steps of a panel; constants wherever the kind fixes them.
template <PanelKind kKind>
struct Steps {
  static constexpr PanelLayout kLayout = layout_of(kKind);
  static constexpr int kMain = kMainBytes[kLayout.code_bits];
  static constexpr int kExtra = kExtraBytes[kLayout.code_bits];
  int groups, scale_bytes, bytes;

  INVAR_INLINE Steps of(const PanelRun& run) {
    Steps s;
    s.groups = kLayout.step_k != 0 ? kLayout.step_k / kGroup : run.groups_per_step;
    s.scale_bytes = kLayout.scale_bytes != 0         ? kLayout.scale_bytes
                    : run.scale_dtype == DType::kF32 ? 128
                                                     : 64;
    s.bytes = s.scale_bytes + s.groups * (kMain + kExtra);
    return s;
  }
  Codes codes(const uint8_t* step, int b) const {
    const uint8_t* main = step + scale_bytes;
    return {main + b * kMain, main + groups * kMain + b * kExtra};
  }
};

}  // namespace
}  // namespace invar::cpu
