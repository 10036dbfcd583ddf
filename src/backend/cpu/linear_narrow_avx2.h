// The int16 dot of AVX2: unsigned codes of up to 6 bits times int8 activations (vpmaddubsw), summed
// in int16 lanes (even lane: k % 4 in {0, 1}, odd lane: {2, 3}) and widened once a group. A zero
// point goes into the start value, -zero * (the lane's sum of q); additions wrap modulo 2^16 and
// the centred sum fits: |code - zero| <= 2^(bits - 1), times 127, times 16 values a lane of a group
// is at most 32,512 for 4 and 5 bits; 6 bits run in two halves. Kinds whose plain sum does not fit
// are centred too and get centre * z back as int32. Included by *_avx2.cc only.
#pragma once

#include "backend/cpu/linear_operands_avx2.h"

namespace invar::cpu {
namespace {

// Codes of at most 6 bits; those of the IQ4 table are bytes.
constexpr bool is_narrow_kind(const PanelLayout& layout) {
  return layout.code_bits < 8 && layout.table != CodeTable::kIq4;
}

// How a group is summed.
struct SumForm {
  int subs;
  bool affine;
  bool two_parts;  // sum the halves of 16 inputs apart and join them as int32
  int add_back;    // centre * z to add
};

constexpr SumForm sum_form(const PanelLayout& layout) {
  const bool centred = layout.affine && layout.code_bits >= 5;
  return {layout.subs, layout.affine, layout.subs == 1 && layout.code_bits == 6,
          centred ? 1 << (layout.code_bits - 1) : 0};
}

// The centre of the int16 sums.
constexpr int sum_centre(const PanelLayout& layout) {
  return layout.affine ? sum_form(layout).add_back : layout.zero;
}

// `rows` broadcasts of one word a slot.
INVAR_INLINE __m256i slot32(const void* field, int slot) {
  return broadcast32(static_cast<const uint8_t*>(field) + slot * 4);
}
INVAR_INLINE __m256 slot_float(const float* field, int slot) {
  return _mm256_broadcast_ss(field + slot);
}

// Operands [t0, t1) of a group against kRows rows. get(t, h) gives the codes.
template <int kRows, typename Get>
INVAR_INLINE void dot_bytes(__m256i (&sum)[kRows][2], const int8_t* q, int t0, int t1,
                            const Get& get) {
  INVAR_UNROLL for (int t = t0; t < t1; ++t) {
    const __m256i w0 = get(t, 0), w1 = get(t, 1);
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
      const __m256i x = broadcast32(q + m * kGroup + t * 4);
      sum[m][0] = _mm256_add_epi16(sum[m][0], _mm256_maddubs_epi16(w0, x));
      sum[m][1] = _mm256_add_epi16(sum[m][1], _mm256_maddubs_epi16(w1, x));
    }
    keep_order<kRows>(sum);
  }
}

// One group: get(t, h) -> operand, scales(sub, h, scale, bias), start(field, slot) -> start value.
template <int kSubs, bool kAffine, bool kTwoParts, int kAddBack, int kRows, typename Get,
          typename Scales, typename Start>
INVAR_INLINE void narrow_group(__m256 (&acc)[kRows][2], const GroupSums& sums, int slot,
                               const int8_t* q, const Get& get, const Scales& scales,
                               const Start& start) {
  const __m256i ones = _mm256_set1_epi16(1);
  constexpr int kParts = kSubs == 2 || kTwoParts ? 2 : 1;
  __m256i first[kRows][2];  // kTwoParts: the first half, widened
  INVAR_UNROLL for (int part = 0; part < kParts; ++part) {
    __m256i sum[kRows][2];
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
      sum[m][0] = start(kParts == 2 ? sums.start_half[part] : sums.start, slot + m);
      sum[m][1] = sum[m][0];
    }
    dot_bytes<kRows>(sum, q, part * 4, kParts == 2 ? part * 4 + 4 : 8, get);
    if (kTwoParts && part == 0) {
      INVAR_UNROLL for (int m = 0; m < kRows; ++m) INVAR_UNROLL for (int h = 0; h < 2; ++h)
          first[m][h] = _mm256_madd_epi16(sum[m][h], ones);
      continue;
    }
    const int sub = kSubs == 2 ? part : 0;
    __m256 scale[2], bias[2];
    INVAR_UNROLL for (int h = 0; h < 2; ++h) scales(sub, h, scale[h], bias[h]);
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
      const __m256 a = slot_float(sums.scale, slot + m);
      __m256 az;
      if (kAffine)
        az = slot_float(kSubs == 2 ? sums.scaled_sum_half[sub] : sums.scaled_sum, slot + m);
      INVAR_UNROLL for (int h = 0; h < 2; ++h) {
        __m256i d = _mm256_madd_epi16(sum[m][h], ones);
        if (kTwoParts) d = _mm256_add_epi32(d, first[m][h]);
        if (kAddBack != 0)
          d = _mm256_add_epi32(
              d, _mm256_slli_epi32(slot32(sums.sum, slot + m), kAddBack == 16 ? 4 : 5));
        acc[m][h] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(d), _mm256_mul_ps(scale[h], a), acc[m][h]);
        if (kAffine) acc[m][h] = _mm256_fmadd_ps(bias[h], az, acc[m][h]);
      }
    }
  }
}

// A panel read as it is packed.
template <PanelKind kKind, int kRows>
void narrow_panel(const PanelRun& run) {
  constexpr PanelLayout kLayout = layout_of(kKind);
  constexpr SumForm kForm = sum_form(kLayout);
  constexpr int kCentre = sum_centre(kLayout);
  const auto start = [](const uint32_t* field, int slot) __attribute__((always_inline)) {
    if constexpr (kCentre == 0) return _mm256_setzero_si256();
    const __m256i negated = slot32(field, slot);
    if constexpr (kCentre == 4) return _mm256_slli_epi16(negated, 2);
    if constexpr (kCentre == 8) return _mm256_slli_epi16(negated, 3);
    if constexpr (kCentre == 16) return _mm256_slli_epi16(negated, 4);
    if constexpr (kCentre == 32) return _mm256_slli_epi16(negated, 5);
    return _mm256_mullo_epi16(negated, _mm256_set1_epi16(kCentre));
  };
  __m256 acc[kRows][2];
  clear<kRows>(acc);
  const int8_t* q = run.bytes;
  const GroupSums* sums = run.sums;
  for_groups<kKind>(run, [&](const Codes& codes, const uint8_t* step, const StepScales& at_step,
                             int b) __attribute__((always_inline)) {
    narrow_group<kForm.subs, kForm.affine, kForm.two_parts, kForm.add_back, kRows>(
        acc, *sums, run.first_slot, q,
        [&](int t, int h) __attribute__((always_inline)) { return operand<kKind>(codes, t, h); },
        [&](int sub, int h, __m256& scale, __m256& bias) __attribute__((always_inline)) {
          load_scales<kKind>(step, at_step, run.scale_dtype, b, sub, h, scale, bias);
        },
        start);
    ++sums;
    q += kTileSlots * kGroup;
  });
  store<kRows>(run.out, acc);
}

}  // namespace
}  // namespace invar::cpu
