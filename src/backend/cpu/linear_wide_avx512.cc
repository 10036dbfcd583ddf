// 12-bit activations (vpdpwssd): instances over packed panels for the kinds that heads are usually
// stored in, and over blocks (a panel unpacked once) for every other kind.
#include "backend/cpu/linear_avx512.h"
#include "backend/cpu/linear_operands_avx512.h"

namespace invar::cpu::avx512 {
namespace {

using PanelFn = LinearKernels::PanelFn;

template <PanelKind kKind, int kRows>
void wide_panel(const PanelRun& run) {
  panel<kKind, kRows>(run, run.quads);
}

template <PanelKind kKind>
PanelFn of(int rows) {
  switch (rows) {
    case 1:
      return wide_panel<kKind, 1>;
    case 2:
      return wide_panel<kKind, 2>;
    case 3:
      return wide_panel<kKind, 3>;
    case 4:
      return wide_panel<kKind, 4>;
    case 5:
      return wide_panel<kKind, 5>;
    case 6:
      return wide_panel<kKind, 6>;
    case 7:
      return wide_panel<kKind, 7>;
    default:
      return wide_panel<kKind, 8>;
  }
}

template <int kSubs, bool kAffine, int kRows>
void wide_blocks(const PanelRun& run) {
  const int zero = kPanelLayouts[static_cast<int>(run.kind)].zero;
  __m512 acc[kRows];
  INVAR_UNROLL for (int m = 0; m < kRows; ++m) acc[m] = _mm512_setzero_ps();
  const int16_t* q = run.quads;
  for (int64_t g = 0; g < run.num_groups; ++g, q += kTileSlots * kGroup) {
    const GroupBlock& block = run.blocks[g];
    group<kSubs, kAffine, kRows>(
        acc, run.sums[g], run.first_slot, zero, q,
        [&](int t) __attribute__((always_inline)) { return load(block.operands[t]); },
        [&](int sub, __m512& scale, __m512& bias) __attribute__((always_inline)) {
          scale = _mm512_load_ps(block.scales[sub]);
          bias = _mm512_load_ps(block.biases[sub]);
        });
  }
  INVAR_UNROLL for (int m = 0; m < kRows; ++m) _mm512_storeu_ps(run.out + m * kPanelRows, acc[m]);
}

template <int kSubs, bool kAffine>
constexpr PanelFn kBlocks[kMaxRows] = {
    wide_blocks<kSubs, kAffine, 1>, wide_blocks<kSubs, kAffine, 2>, wide_blocks<kSubs, kAffine, 3>,
    wide_blocks<kSubs, kAffine, 4>, wide_blocks<kSubs, kAffine, 5>, wide_blocks<kSubs, kAffine, 6>,
    wide_blocks<kSubs, kAffine, 7>, wide_blocks<kSubs, kAffine, 8>};

template <PanelKind kKind>
void unpack(const PanelRun& run, GroupBlock* out) {
  constexpr int kSubs = layout_of(kKind).subs;
  const Steps<kKind> steps = Steps<kKind>::of(run);
  for_groups<kKind>(run, [&](const uint8_t* step, const StepScales& at_step,
                             int b) __attribute__((always_inline)) {
    const Codes codes = steps.codes(step, b);
    INVAR_UNROLL for (int t = 0; t < 8; ++t)
        _mm512_store_si512(out->operands[t], operand<kKind>(codes, t));
    INVAR_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
      __m512 scale, bias = _mm512_setzero_ps();
      load_scales<kKind>(step, at_step, run.scale_dtype, b, sub, scale, bias);
      _mm512_store_ps(out->scales[sub], scale);
      _mm512_store_ps(out->biases[sub], bias);
    }
    ++out;
  });
}

}  // namespace

PanelFn wide_fn(PanelKind kind, int rows) {
  switch (kind) {
    case PanelKind::kQ8_0:
      return of<PanelKind::kQ8_0>(rows);
    case PanelKind::kQ4_0:
      return of<PanelKind::kQ4_0>(rows);
    case PanelKind::kQ4_K:
      return of<PanelKind::kQ4_K>(rows);
    case PanelKind::kQ6_K:
      return of<PanelKind::kQ6_K>(rows);
    case PanelKind::kMlx4:
      return of<PanelKind::kMlx4>(rows);
    case PanelKind::kMlx8:
      return of<PanelKind::kMlx8>(rows);
    default:
      return nullptr;
  }
}

void unpack_panel(const PanelRun& run, GroupBlock* out) {
  switch (run.kind) {
    case PanelKind::kQ4_1:
      return unpack<PanelKind::kQ4_1>(run, out);
    case PanelKind::kQ5_0:
      return unpack<PanelKind::kQ5_0>(run, out);
    case PanelKind::kQ5_1:
      return unpack<PanelKind::kQ5_1>(run, out);
    case PanelKind::kQ2_K:
      return unpack<PanelKind::kQ2_K>(run, out);
    case PanelKind::kQ3_K:
      return unpack<PanelKind::kQ3_K>(run, out);
    case PanelKind::kQ5_K:
      return unpack<PanelKind::kQ5_K>(run, out);
    case PanelKind::kIQ4_NL:
      return unpack<PanelKind::kIQ4_NL>(run, out);
    case PanelKind::kIQ4_XS:
      return unpack<PanelKind::kIQ4_XS>(run, out);
    case PanelKind::kMXFP4:
      return unpack<PanelKind::kMXFP4>(run, out);
    case PanelKind::kMlx2:
      return unpack<PanelKind::kMlx2>(run, out);
    case PanelKind::kMlx3:
      return unpack<PanelKind::kMlx3>(run, out);
    case PanelKind::kMlx5:
      return unpack<PanelKind::kMlx5>(run, out);
    case PanelKind::kMlx6:
      return unpack<PanelKind::kMlx6>(run, out);
    default:
      return;  // wide_fn serves it
  }
}

PanelFn block_fn(PanelKind kind, int rows) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(kind)];
  if (layout.subs == 2)
    return layout.affine ? kBlocks<2, true>[rows - 1] : kBlocks<2, false>[rows - 1];
  return layout.affine ? kBlocks<1, true>[rows - 1] : kBlocks<1, false>[rows - 1];
}

}  // namespace invar::cpu::avx512
