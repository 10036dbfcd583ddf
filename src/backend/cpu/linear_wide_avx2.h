// Int32 sums over the two halves of a panel, for the sets with 16 registers of 256 bits: the group,
// the walk over a packed panel and the walk over unpacked blocks, each with the dot product as a
// parameter. Here stands AVX2's own (vpmaddwd), for 8-bit codes and for 12-bit activations; those
// of AVX-VNNI are in linear_dots_avxvnni.h. Included by *_avx2.cc and *_avxvnni.cc only.
#pragma once

#include "backend/cpu/linear_operands_avx2.h"

namespace invar::cpu {
namespace {

// A set of dots names the activations that it reads, and adds operands [t0, t1) of a group, given
// by get(t, h), to the sums of kRows rows.
//
// Codes widened to 16 bits times 16-bit activations, by Pairs::add(sum, codes, values). The even
// and the odd bytes of an operand are one mask and one shift away from 16 bits; activations are
// stored in that order ("quads", panels.h).
template <typename Pairs>
struct WidenedDots {
  static const int16_t* values(const PanelRun& run) { return run.quads; }

  template <int kRows, typename Get>
  INVAR_INLINE void add(__m256i (&sum)[kRows][2], const int16_t* q, int t0, int t1,
                        const Get& get) {
    const __m256i low = _mm256_set1_epi16(255);
    INVAR_UNROLL for (int t = t0; t < t1; ++t) {
      const __m256i w0 = get(t, 0), w1 = get(t, 1);
      INVAR_UNROLL for (int odd = 0; odd < 2; ++odd) {
        const __m256i v0 = odd ? _mm256_srli_epi16(w0, 8) : _mm256_and_si256(w0, low);
        const __m256i v1 = odd ? _mm256_srli_epi16(w1, 8) : _mm256_and_si256(w1, low);
        INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
          const __m256i x = broadcast32(q + m * kGroup + t * 4 + odd * 2);
          sum[m][0] = Pairs::add(sum[m][0], v0, x);
          sum[m][1] = Pairs::add(sum[m][1], v1, x);
        }
        keep_order<kRows>(sum);
      }
    }
  }
};

// AVX2's own.
struct MaddPairs {
  INVAR_INLINE __m256i add(__m256i sum, __m256i codes, __m256i values) {
    return _mm256_add_epi32(sum, _mm256_madd_epi16(codes, values));
  }
};

// One group: scales(sub, h, scale, bias) as in narrow_group. The zero point of a symmetric kind
// goes into the start value, -zero * z.
template <typename Dots, int kSubs, bool kAffine, int kRows, typename Value, typename Get,
          typename Scales>
INVAR_INLINE void wide_group(__m256 (&acc)[kRows][2], const GroupSums& sums, int slot, int zero,
                             const Value* q, const Get& get, const Scales& scales) {
  INVAR_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
    __m256i sum[kRows][2];
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
      if (kAffine) {
        sum[m][0] = _mm256_setzero_si256();
      } else {
        const int z = kSubs == 2 ? sums.sum_half[sub][slot + m] : sums.sum[slot + m];
        sum[m][0] = _mm256_set1_epi32(-zero * z);
      }
      sum[m][1] = sum[m][0];
    }
    Dots::template add<kRows>(sum, q, sub * 4, kSubs == 2 ? sub * 4 + 4 : 8, get);
    __m256 scale[2], bias[2];
    INVAR_UNROLL for (int h = 0; h < 2; ++h) scales(sub, h, scale[h], bias[h]);
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
      const __m256 a = _mm256_broadcast_ss(sums.scale + slot + m);
      __m256 az;
      if (kAffine)
        az = _mm256_broadcast_ss((kSubs == 2 ? sums.scaled_sum_half[sub] : sums.scaled_sum) + slot +
                                 m);
      INVAR_UNROLL for (int h = 0; h < 2; ++h) {
        acc[m][h] =
            _mm256_fmadd_ps(_mm256_cvtepi32_ps(sum[m][h]), _mm256_mul_ps(scale[h], a), acc[m][h]);
        if (kAffine) acc[m][h] = _mm256_fmadd_ps(bias[h], az, acc[m][h]);
      }
    }
  }
}

// A panel read as it is packed.
template <typename Dots, PanelKind kKind, int kRows>
void wide_panel(const PanelRun& run) {
  constexpr PanelLayout kLayout = layout_of(kKind);
  __m256 acc[kRows][2];
  clear<kRows>(acc);
  const auto* q = Dots::values(run);
  const GroupSums* sums = run.sums;
  for_groups<kKind>(run, [&](const Codes& codes, const uint8_t* step, const StepScales& at_step,
                             int b) __attribute__((always_inline)) {
    wide_group<Dots, kLayout.subs, kLayout.affine, kRows>(
        acc, *sums, run.first_slot, kLayout.zero, q,
        [&](int t, int h) __attribute__((always_inline)) { return operand<kKind>(codes, t, h); },
        [&](int sub, int h, __m256& scale, __m256& bias) __attribute__((always_inline)) {
          load_scales<kKind>(step, at_step, run.scale_dtype, b, sub, h, scale, bias);
        });
    ++sums;
    q += kTileSlots * kGroup;
  });
  store<kRows>(run.out, acc);
}

// A panel unpacked beforehand.
template <typename Dots, int kSubs, bool kAffine, int kRows>
void wide_blocks(const PanelRun& run) {
  const int zero = kPanelLayouts[static_cast<int>(run.kind)].zero;
  __m256 acc[kRows][2];
  clear<kRows>(acc);
  const auto* q = Dots::values(run);
  for (int64_t g = 0; g < run.num_groups; ++g, q += kTileSlots * kGroup) {
    const GroupBlock& block = run.blocks[g];
    wide_group<Dots, kSubs, kAffine, kRows>(
        acc, run.sums[g], run.first_slot, zero, q,
        [&](int t, int h) __attribute__((always_inline)) { return block_operand(block, t, h); },
        [&](int sub, int h, __m256& scale, __m256& bias)
            __attribute__((always_inline)) { block_scales(block, sub, h, scale, bias); });
  }
  store<kRows>(run.out, acc);
}

// ---- Instances, by kind and 1 to 6 rows

template <typename Dots, PanelKind kKind>
constexpr LinearKernels::PanelFn kWidePanels[] = {
    wide_panel<Dots, kKind, 1>, wide_panel<Dots, kKind, 2>, wide_panel<Dots, kKind, 3>,
    wide_panel<Dots, kKind, 4>, wide_panel<Dots, kKind, 5>, wide_panel<Dots, kKind, 6>};
template <typename Dots, int kSubs, bool kAffine>
constexpr LinearKernels::PanelFn kWideBlocks[] = {
    wide_blocks<Dots, kSubs, kAffine, 1>, wide_blocks<Dots, kSubs, kAffine, 2>,
    wide_blocks<Dots, kSubs, kAffine, 3>, wide_blocks<Dots, kSubs, kAffine, 4>,
    wide_blocks<Dots, kSubs, kAffine, 5>, wide_blocks<Dots, kSubs, kAffine, 6>};

// Null for kinds that are not quantized.
template <typename Dots>
LinearKernels::PanelFn wide_panel_fn(PanelKind kind, int rows) {
  switch (kind) {
#define INVAR_CASE(k) \
  case PanelKind::k:  \
    return kWidePanels<Dots, PanelKind::k>[rows - 1];
    INVAR_QUANTIZED_KINDS(INVAR_CASE)
#undef INVAR_CASE
    default:
      return nullptr;
  }
}

template <typename Dots>
LinearKernels::PanelFn wide_blocks_fn(PanelKind kind, int rows) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(kind)];
  if (layout.subs == 2)
    return layout.affine ? kWideBlocks<Dots, 2, true>[rows - 1]
                         : kWideBlocks<Dots, 2, false>[rows - 1];
  return layout.affine ? kWideBlocks<Dots, 1, true>[rows - 1]
                       : kWideBlocks<Dots, 1, false>[rows - 1];
}

}  // namespace
}  // namespace invar::cpu
