// Many rows: a panel is unpacked once into one GroupBlock a group, and all tiles of the row block
// read that. Same sums in the same order as the kernels that read the panel, so the same bits;
// kinds that sum alike share an instance.
#include "backend/cpu/linear_avx2.h"
#include "backend/cpu/linear_narrow_avx2.h"
#include "backend/cpu/linear_wide_avx2.h"

namespace invar::cpu::avx2 {
namespace {

template <PanelKind kKind>
void unpack(const PanelRun& run, GroupBlock* out) {
  constexpr int kSubs = layout_of(kKind).subs;
  for_groups<kKind>(run, [&](const Codes& codes, const uint8_t* step, const StepScales& at_step,
                             int b) __attribute__((always_inline)) {
    INVAR_UNROLL for (int h = 0; h < 2; ++h) {
      INVAR_UNROLL for (int t = 0; t < 8; ++t) _mm256_store_si256(
          reinterpret_cast<__m256i*>(out->operands[t] + h * 32), operand<kKind>(codes, t, h));
      INVAR_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
        __m256 scale, bias = _mm256_setzero_ps();
        load_scales<kKind>(step, at_step, run.scale_dtype, b, sub, h, scale, bias);
        _mm256_store_ps(out->scales[sub] + h * 8, scale);
        _mm256_store_ps(out->biases[sub] + h * 8, bias);
      }
    }
    ++out;
  });
}

// kCentre: of the int16 sums; -1: the kind's zero point, any.
template <int kSubs, bool kAffine, bool kTwoParts, int kAddBack, int kRows>
void narrow_blocks(const PanelRun& run) {
  const auto centre =
      static_cast<short>(kAffine ? kAddBack : kPanelLayouts[static_cast<int>(run.kind)].zero);
  const __m256i centres = _mm256_set1_epi16(centre);
  const auto start = [&](const uint32_t* field, int slot) __attribute__((always_inline)) {
    if constexpr (kAffine && kAddBack == 0) return _mm256_setzero_si256();
    return _mm256_mullo_epi16(slot32(field, slot), centres);
  };
  __m256 acc[kRows][2];
  clear<kRows>(acc);
  const int8_t* q = run.bytes;
  for (int64_t g = 0; g < run.num_groups; ++g, q += kTileSlots * kGroup) {
    const GroupBlock& block = run.blocks[g];
    narrow_group<kSubs, kAffine, kTwoParts, kAddBack, kRows>(
        acc, run.sums[g], run.first_slot, q,
        [&](int t, int h) __attribute__((always_inline)) { return block_operand(block, t, h); },
        [&](int sub, int h, __m256& scale, __m256& bias)
            __attribute__((always_inline)) { block_scales(block, sub, h, scale, bias); },
        start);
  }
  store<kRows>(run.out, acc);
}

using PanelFn = LinearKernels::PanelFn;

template <int kSubs, bool kAffine, bool kTwoParts, int kAddBack>
constexpr PanelFn kNarrow[kMaxRows] = {narrow_blocks<kSubs, kAffine, kTwoParts, kAddBack, 1>,
                                       narrow_blocks<kSubs, kAffine, kTwoParts, kAddBack, 2>,
                                       narrow_blocks<kSubs, kAffine, kTwoParts, kAddBack, 3>,
                                       narrow_blocks<kSubs, kAffine, kTwoParts, kAddBack, 4>,
                                       narrow_blocks<kSubs, kAffine, kTwoParts, kAddBack, 5>,
                                       narrow_blocks<kSubs, kAffine, kTwoParts, kAddBack, 6>};

}  // namespace

bool is_narrow(PanelKind kind, int bits) {
  return bits == 8 && is_narrow_kind(kPanelLayouts[static_cast<int>(kind)]);
}

void unpack_panel(const PanelRun& run, GroupBlock* out) {
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

PanelFn block_fn(PanelKind kind, int bits, int rows) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(kind)];
  const int i = rows - 1;
  if (!is_narrow(kind, bits)) return wide_blocks_fn<WidenedDots<MaddPairs>>(kind, rows);
  if (layout.subs == 2)
    return layout.affine ? kNarrow<2, true, false, 0>[i] : kNarrow<2, false, false, 0>[i];
  if (!layout.affine) return kNarrow<1, false, false, 0>[i];
  if (layout.code_bits == 5) return kNarrow<1, true, false, 16>[i];
  if (layout.code_bits == 6) return kNarrow<1, true, true, 32>[i];
  return kNarrow<1, true, false, 0>[i];
}

}  // namespace invar::cpu::avx2
