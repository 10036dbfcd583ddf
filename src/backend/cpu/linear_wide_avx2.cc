// Instances of the int32 dot over packed panels: the kinds that use it at 8-bit activations, and
// those that heads are usually stored in. Every other kind meets 12-bit activations through blocks.
#include "backend/cpu/linear_wide_avx2.h"

#include "backend/cpu/linear_avx2.h"

namespace invar::cpu::avx2 {
namespace {

template <PanelKind kKind, int kRows>
void wide_panel(const PanelRun& run) {
  constexpr PanelLayout kLayout = layout_of(kKind);
  const Steps<kKind> steps = Steps<kKind>::of(run);
  __m256 acc[kRows][2];
  INVAR_UNROLL for (int m = 0; m < kRows; ++m) acc[m][0] = acc[m][1] = _mm256_setzero_ps();
  const uint8_t* step = run.panel;
  const int16_t* q = run.quads;
  const GroupSums* sums = run.sums;
  const int lines = (steps.bytes / 64 + steps.groups - 1) / steps.groups;
  for (int64_t g = 0; g < run.num_groups; g += steps.groups, step += steps.bytes) {
    StepScales at_step;
    load_step<kKind>(step, at_step);
    const int64_t left = run.num_groups - g;
    const int count = left < steps.groups ? static_cast<int>(left) : steps.groups;
    for (int b = 0; b < count; ++b, ++sums, q += kTileSlots * kGroup) {
      for (int i = 0; i < lines; ++i)
        _mm_prefetch(reinterpret_cast<const char*>(step) + 1024 + (b * lines + i) * 64,
                     _MM_HINT_T0);
      const Codes codes = steps.codes(step, b);
      wide_group<kLayout.subs, kLayout.affine, kRows>(
          acc, *sums, run.first_slot, kLayout.zero, q,
          [&](int t, int h) __attribute__((always_inline)) { return operand<kKind>(codes, t, h); },
          [&](int sub, int h, __m256& scale, __m256& bias) __attribute__((always_inline)) {
            load_scales<kKind>(step, at_step, run.scale_dtype, b, sub, h, scale, bias);
          });
    }
  }
  INVAR_UNROLL for (int m = 0; m < kRows; ++m) INVAR_UNROLL for (int h = 0; h < 2; ++h)
      _mm256_storeu_ps(run.out + m * kPanelRows + h * 8, acc[m][h]);
}

template <PanelKind kKind>
LinearKernels::PanelFn of(int rows) {
  switch (rows) {
    case 1:
      return wide_panel<kKind, 1>;
    case 2:
      return wide_panel<kKind, 2>;
    case 3:
      return wide_panel<kKind, 3>;
    default:
      return wide_panel<kKind, 4>;
  }
}

}  // namespace

LinearKernels::PanelFn wide_fn(PanelKind kind, int rows) {
  switch (kind) {
    case PanelKind::kQ8_0:
      return of<PanelKind::kQ8_0>(rows);
    case PanelKind::kQ4_0:
      return of<PanelKind::kQ4_0>(rows);
    case PanelKind::kQ4_K:
      return of<PanelKind::kQ4_K>(rows);
    case PanelKind::kQ6_K:
      return of<PanelKind::kQ6_K>(rows);
    case PanelKind::kIQ4_NL:
      return of<PanelKind::kIQ4_NL>(rows);
    case PanelKind::kIQ4_XS:
      return of<PanelKind::kIQ4_XS>(rows);
    case PanelKind::kMlx4:
      return of<PanelKind::kMlx4>(rows);
    case PanelKind::kMlx6:
      return of<PanelKind::kMlx6>(rows);
    case PanelKind::kMlx8:
      return of<PanelKind::kMlx8>(rows);
    default:
      return nullptr;
  }
}

}  // namespace invar::cpu::avx2
