// One group of a panel against some rows, and the kernels made of it. Integer sums are exact, so
// how they are formed is free; the fp32 steps are those of linear_portable.cc.
//
// Two forms of the sum. SDOT or USDOT: 4 lanes x 4 inputs of one row. USMMLA (i8mm): 2 lanes x 8
// inputs of two rows, twice the products, for which neighbouring operands are zipped to 8 inputs a
// lane. 12-bit activations come as q = 128 h + l with h and l in bytes (quantize_row_neon.cc): two
// sums of the 8-bit kind, where widening weights to 16 bits would take four.
//
// Registers: of 32, 16 hold integer sums, the rest weights, activations and masks. So up to four
// rows run against all 16 lanes at once, more (or 12 bits) against 8 or 4 lanes at a time. fp32
// sums stay in L1 between groups.
//
// Instructions of a group of 32 inputs x 16 lanes (Q4_0, 8 bits) as GCC 12 makes them, counted in
// the object file, for 1 / 2 / 4 / 8 rows: SDOT 117 / 195 / 332 / 630, of them 32 a row dots;
// USMMLA for 4 / 8 rows 268 / 580, of them 16 a row; eight rows against an unpacked panel 600 /
// 420. So eight rows take 5.4 (SDOT) or 3.6 (USMMLA, unpacked) times the instructions of one and
// read the weights once. Speed was not measured: these kernels have run under qemu only.
#pragma once

#include "backend/cpu/linear_operands_arm.h"

namespace invar::cpu {
namespace {

constexpr int kMaxRows = 8;

// Registers of the 16 lanes' four that are summed at a time.
constexpr int registers_at_once(int rows, int bits) {
  const int sums = rows * (bits == 8 ? 1 : 2);
  return sums <= 4 ? 4 : sums <= 8 ? 2 : 1;
}

// Four lanes' sums += codes times values 4t .. 4t + 3 of x.
INVAR_INLINE int32x4_t dot(int32x4_t sum, uint8x16_t w, int8x16_t x, int t) {
#ifdef __ARM_FEATURE_MATMUL_INT8
  switch (t) {
    case 0:
      return vusdotq_laneq_s32(sum, w, x, 0);
    case 1:
      return vusdotq_laneq_s32(sum, w, x, 1);
    case 2:
      return vusdotq_laneq_s32(sum, w, x, 2);
    default:
      return vusdotq_laneq_s32(sum, w, x, 3);
  }
#else
  const int8x16_t codes = vreinterpretq_s8_u8(w);
  switch (t) {
    case 0:
      return vdotq_laneq_s32(sum, codes, x, 0);
    case 1:
      return vdotq_laneq_s32(sum, codes, x, 1);
    case 2:
      return vdotq_laneq_s32(sum, codes, x, 2);
    default:
      return vdotq_laneq_s32(sum, codes, x, 3);
  }
#endif
}

// l + 128 h.
INVAR_INLINE int32x4_t joined(int32x4_t low, int32x4_t high) {
  return vaddq_s32(low, vshlq_n_s32(high, 7));
}

// acc: [row][16 lanes]. get(t, v) gives a register of codes, scales(sub, v, scale, bias) what the
// name says; the sums begin at start_factor * (sum of q).
template <int kSubs, bool kAffine, int kRows, int kBits, typename Get, typename Scales>
INVAR_INLINE void dot_group(float* acc, const GroupSums& sums, int slot, int start_factor,
                            const int8_t* q, const Get& get, const Scales& scales) {
  constexpr int kParts = kBits == 8 ? 1 : 2;  // l, h
  constexpr int kRegisters = registers_at_once(kRows, kBits);
  for (int first = 0; first < 4; first += kRegisters) {
    INVAR_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
      int32x4_t sum[kParts][kRows][kRegisters];
      INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
        int32x4_t start = vdupq_n_s32(0);
        if (!kAffine || start_factor != 0)
          start = vmulq_n_s32(
              vld1q_dup_s32((kSubs == 2 ? sums.sum_half[sub] : sums.sum) + slot + m), start_factor);
        INVAR_UNROLL for (int r = 0; r < kRegisters; ++r) {
          sum[0][m][r] = start;
          if (kParts == 2) sum[kParts - 1][m][r] = vdupq_n_s32(0);
        }
      }
      INVAR_UNROLL for (int half = 0; half < 2 / kSubs; ++half) {
        const int from = sub + half;  // of the group's two runs of 16 inputs
        int8x16_t x[kParts][kRows];
        INVAR_UNROLL for (int m = 0; m < kRows; ++m)
            INVAR_UNROLL for (int part = 0; part < kParts; ++part) x[part][m] =
                vld1q_s8(q + (m * kParts + part) * kGroup + from * 16);
        INVAR_UNROLL for (int t = 0; t < 4; ++t) {
          INVAR_UNROLL for (int r = 0; r < kRegisters; ++r) {
            const uint8x16_t w = get(from * 4 + t, first + r);
            INVAR_UNROLL for (int m = 0; m < kRows; ++m)
                INVAR_UNROLL for (int part = 0; part < kParts; ++part) sum[part][m][r] =
                    dot(sum[part][m][r], w, x[part][m], t);
          }
        }
      }
      INVAR_UNROLL for (int r = 0; r < kRegisters; ++r) {
        float32x4_t scale, bias;
        scales(sub, first + r, scale, bias);
        INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
          float* at = acc + m * kPanelRows + (first + r) * 4;
          const int32x4_t d =
              kParts == 1 ? sum[0][m][r] : joined(sum[0][m][r], sum[kParts - 1][m][r]);
          float32x4_t a =
              vfmaq_f32(vld1q_f32(at), vcvtq_f32_s32(d), vmulq_n_f32(scale, sums.scale[slot + m]));
          if (kAffine)
            a = vfmaq_n_f32(a, bias,
                            (kSubs == 2 ? sums.scaled_sum_half[sub] : sums.scaled_sum)[slot + m]);
          vst1q_f32(at, a);
        }
      }
    }
  }
}

#ifdef __ARM_FEATURE_MATMUL_INT8

// Registers w0 and w1 of operands 2c and 2c + 1 as lanes 0, 1 and lanes 2, 3 with 8 inputs each.
struct Zipped {
  uint8x16_t lanes01, lanes23;
};
INVAR_INLINE Zipped zipped(uint8x16_t w0, uint8x16_t w1) {
  const uint32x4_t a = vreinterpretq_u32_u8(w0), b = vreinterpretq_u32_u8(w1);
  return {vreinterpretq_u8_u32(vzip1q_u32(a, b)), vreinterpretq_u8_u32(vzip2q_u32(a, b))};
}

// Values of the rows of a pair, (m, m + 1, m, m + 1). The last row of an odd number is its own
// pair.
template <int kRows>
INVAR_INLINE float32x4_t pair_of(const float* field, int m) {
  if (m + 1 == kRows) return vld1q_dup_f32(field + m);
  const float32x2_t both = vld1_f32(field + m);
  return vcombine_f32(both, both);
}
template <int kRows>
INVAR_INLINE int32x4_t pair_of(const int32_t* field, int m) {
  if (m + 1 == kRows) return vld1q_dup_s32(field + m);
  const int32x2_t both = vld1_s32(field + m);
  return vcombine_s32(both, both);
}

// fp32 sums of pairs of rows: [pair][register][lanes 0, 1 or 2, 3], each (lane, row) = (0, m),
// (0, m + 1), (1, m), (1, m + 1).
template <int kRows>
using PairSums = float32x4_t[(kRows + 1) / 2][4][2];

// As dot_group; get(c, v) gives zipped codes of inputs 8c .. 8c + 7.
template <int kSubs, bool kAffine, int kRows, int kBits, typename Get, typename Scales>
INVAR_INLINE void pair_group(PairSums<kRows>& acc, const GroupSums& sums, int slot,
                             int start_factor, const int8_t* q, const Get& get,
                             const Scales& scales) {
  constexpr int kParts = kBits == 8 ? 1 : 2;
  constexpr int kPairs = (kRows + 1) / 2;
  constexpr int kRegisters = registers_at_once(kPairs * 2, kBits);
  for (int first = 0; first < 4; first += kRegisters) {
    INVAR_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
      int32x4_t sum[kParts][kPairs][kRegisters][2];
      INVAR_UNROLL for (int p = 0; p < kPairs; ++p) {
        int32x4_t start = vdupq_n_s32(0);
        if (!kAffine)
          start = vmulq_n_s32(
              pair_of<kRows>((kSubs == 2 ? sums.sum_half[sub] : sums.sum) + slot, 2 * p),
              start_factor);
        INVAR_UNROLL for (int r = 0; r < kRegisters; ++r) INVAR_UNROLL for (int i = 0; i < 2; ++i) {
          sum[0][p][r][i] = start;
          if (kParts == 2) sum[kParts - 1][p][r][i] = vdupq_n_s32(0);
        }
      }
      INVAR_UNROLL for (int half = 0; half < 2 / kSubs; ++half) {
        const int from = sub + half;
        int8x16_t x[kParts][kPairs][2];  // [8 inputs]
        INVAR_UNROLL for (int p = 0; p < kPairs; ++p)
            INVAR_UNROLL for (int part = 0; part < kParts; ++part) {
          const int second = 2 * p + 1 < kRows ? 2 * p + 1 : 2 * p;
          const int8_t* at = q + part * kGroup + from * 16;
          const int64x2_t x0 = vreinterpretq_s64_s8(vld1q_s8(at + 2 * p * kParts * kGroup));
          const int64x2_t x1 = vreinterpretq_s64_s8(vld1q_s8(at + second * kParts * kGroup));
          x[part][p][0] = vreinterpretq_s8_s64(vtrn1q_s64(x0, x1));
          x[part][p][1] = vreinterpretq_s8_s64(vtrn2q_s64(x0, x1));
        }
        INVAR_UNROLL for (int c = 0; c < 2; ++c) {
          INVAR_UNROLL for (int r = 0; r < kRegisters; ++r) {
            const Zipped w = get(from * 2 + c, first + r);
            INVAR_UNROLL for (int p = 0; p < kPairs; ++p)
                INVAR_UNROLL for (int part = 0; part < kParts; ++part) {
              int32x4_t(&s)[2] = sum[part][p][r];
              s[0] = vusmmlaq_s32(s[0], w.lanes01, x[part][p][c]);
              s[1] = vusmmlaq_s32(s[1], w.lanes23, x[part][p][c]);
            }
          }
        }
      }
      INVAR_UNROLL for (int r = 0; r < kRegisters; ++r) {
        float32x4_t scale, bias = vdupq_n_f32(0);
        scales(sub, first + r, scale, bias);
        const float32x4_t scale_of[2] = {vzip1q_f32(scale, scale), vzip2q_f32(scale, scale)};
        const float32x4_t bias_of[2] = {vzip1q_f32(bias, bias), vzip2q_f32(bias, bias)};
        INVAR_UNROLL for (int p = 0; p < kPairs; ++p) {
          const float32x4_t a = pair_of<kRows>(sums.scale + slot, 2 * p);
          INVAR_UNROLL for (int i = 0; i < 2; ++i) {
            const int32x4_t d =
                kParts == 1 ? sum[0][p][r][i] : joined(sum[0][p][r][i], sum[kParts - 1][p][r][i]);
            float32x4_t y =
                vfmaq_f32(acc[p][first + r][i], vcvtq_f32_s32(d), vmulq_f32(scale_of[i], a));
            if (kAffine)
              y = vfmaq_f32(
                  y, bias_of[i],
                  pair_of<kRows>((kSubs == 2 ? sums.scaled_sum_half[sub] : sums.scaled_sum) + slot,
                                 2 * p));
            acc[p][first + r][i] = y;
          }
        }
      }
    }
  }
}

template <int kRows>
INVAR_INLINE void store_pairs(float* out, const PairSums<kRows>& acc) {
  INVAR_UNROLL for (int p = 0; p < (kRows + 1) / 2; ++p) INVAR_UNROLL for (int v = 0; v < 4; ++v) {
    float* at = out + 2 * p * kPanelRows + v * 4;
    vst1q_f32(at, vuzp1q_f32(acc[p][v][0], acc[p][v][1]));
    if (2 * p + 1 < kRows) vst1q_f32(at + kPanelRows, vuzp2q_f32(acc[p][v][0], acc[p][v][1]));
  }
}

#endif

// The rows' values: bytes, or for 12 bits l and h of each slot in the memory of the quads.
template <int kBits>
INVAR_INLINE const int8_t* values_of(const PanelRun& run) {
  return kBits == 8 ? run.bytes : reinterpret_cast<const int8_t*>(run.quads);
}
template <int kBits>
constexpr int kGroupBytes = kTileSlots * kGroup * (kBits == 8 ? 1 : 2);

// Calls body(acc) with sums at zero, in the form of dot_group or pair_group, and stores them.
template <bool kPairs, int kRows, typename Body>
INVAR_INLINE void with_sums(float* out, const Body& body) {
#ifdef __ARM_FEATURE_MATMUL_INT8
  if constexpr (kPairs) {
    PairSums<kRows> acc;
    INVAR_UNROLL for (int p = 0; p < (kRows + 1) / 2; ++p) INVAR_UNROLL for (int v = 0; v < 4; ++v)
        acc[p][v][0] = acc[p][v][1] = vdupq_n_f32(0);
    body(acc);
    store_pairs<kRows>(out, acc);
    return;
  }
#endif
  if constexpr (!kPairs) {
    INVAR_UNROLL for (int i = 0; i < kRows * 4; ++i) vst1q_f32(out + i * 4, vdupq_n_f32(0));
    body(out);
  }
}

// Of how many rows USMMLA needs fewer instructions, zips included: 32 + 16 a row against 32 a row.
constexpr int kMinPairRows = 4;

// A panel read as it is packed.
template <PanelKind kKind, int kRows, int kBits>
void panel(const PanelRun& run) {
  constexpr PanelLayout kLayout = layout_of(kKind);
  constexpr int kStart = shift_of(kLayout) - kLayout.zero;
  constexpr bool kPairs = kI8mm && kRows >= kMinPairRows;
  const Steps<kKind> steps = Steps<kKind>::of(run);
  const int8_t* q = values_of<kBits>(run);
  const GroupSums* sums = run.sums;
  with_sums<kPairs, kRows>(run.out, [&](auto& acc) __attribute__((always_inline)) {
    for_groups<kKind>(run, [&](const uint8_t* step, int b) __attribute__((always_inline)) {
      const Codes codes = steps.codes(step, b);
      const auto scales = [&](int sub, int v, float32x4_t& scale, float32x4_t& bias)
                              __attribute__((always_inline)) {
                                load_scales<kKind>(step, run.scale_dtype, b, sub, v, scale, bias);
                              };
      if constexpr (!kPairs) {
        dot_group<kLayout.subs, kLayout.affine, kRows, kBits>(
            acc, *sums, run.first_slot, kStart, q,
            [&](int t, int v)
                __attribute__((always_inline)) { return operand<kKind>(codes, t, v); },
            scales);
      }
#ifdef __ARM_FEATURE_MATMUL_INT8
      if constexpr (kPairs) {
        pair_group<kLayout.subs, kLayout.affine, kRows, kBits>(
            acc, *sums, run.first_slot, kStart, q,
            [&](int c, int v) __attribute__((always_inline)) {
              return zipped(operand<kKind>(codes, 2 * c, v), operand<kKind>(codes, 2 * c + 1, v));
            },
            scales);
      }
#endif
      ++sums;
      q += kGroupBytes<kBits>;
    });
  });
}

// A panel unpacked once for many rows; i8mm keeps the codes zipped.
template <PanelKind kKind>
void unpack(const PanelRun& run, GroupBlock* out) {
  constexpr int kSubs = layout_of(kKind).subs;
  const Steps<kKind> steps = Steps<kKind>::of(run);
  for_groups<kKind>(run, [&](const uint8_t* step, int b) __attribute__((always_inline)) {
    const Codes codes = steps.codes(step, b);
    INVAR_UNROLL for (int v = 0; v < 4; ++v) {
      INVAR_UNROLL for (int c = 0; c < 4; ++c) {
        const uint8x16_t w0 = operand<kKind>(codes, 2 * c, v);
        const uint8x16_t w1 = operand<kKind>(codes, 2 * c + 1, v);
#ifdef __ARM_FEATURE_MATMUL_INT8
        const Zipped w = zipped(w0, w1);
        vst1q_u8(out->operands[2 * c] + v * 16, w.lanes01);
        vst1q_u8(out->operands[2 * c + 1] + v * 16, w.lanes23);
#else
        vst1q_u8(out->operands[2 * c] + v * 16, w0);
        vst1q_u8(out->operands[2 * c + 1] + v * 16, w1);
#endif
      }
      INVAR_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
        float32x4_t scale, bias = vdupq_n_f32(0);
        load_scales<kKind>(step, run.scale_dtype, b, sub, v, scale, bias);
        vst1q_f32(out->scales[sub] + v * 4, scale);
        vst1q_f32(out->biases[sub] + v * 4, bias);
      }
    }
    ++out;
  });
}

// Kinds that sum alike share an instance.
template <int kSubs, bool kAffine, int kRows, int kBits>
void blocks(const PanelRun& run) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(run.kind)];
  const int start = shift_of(layout) - layout.zero;
  const int8_t* q = values_of<kBits>(run);
  with_sums<kI8mm, kRows>(run.out, [&](auto& acc) __attribute__((always_inline)) {
    for (int64_t g = 0; g < run.num_groups; ++g, q += kGroupBytes<kBits>) {
      const GroupBlock& block = run.blocks[g];
      const auto scales = [&](int sub, int v, float32x4_t& scale, float32x4_t& bias)
                              __attribute__((always_inline)) {
                                scale = vld1q_f32(block.scales[sub] + v * 4);
                                bias = vld1q_f32(block.biases[sub] + v * 4);
                              };
#ifdef __ARM_FEATURE_MATMUL_INT8
      pair_group<kSubs, kAffine, kRows, kBits>(
          acc, run.sums[g], run.first_slot, start, q,
          [&](int c, int v) __attribute__((always_inline)) {
            return Zipped{vld1q_u8(block.operands[2 * c] + v * 16),
                          vld1q_u8(block.operands[2 * c + 1] + v * 16)};
          },
          scales);
#else
      dot_group<kSubs, kAffine, kRows, kBits>(
          acc, run.sums[g], run.first_slot, start, q,
          [&](int t, int v)
              __attribute__((always_inline)) { return vld1q_u8(block.operands[t] + v * 16); },
          scales);
#endif
    }
  });
}

}  // namespace
}  // namespace invar::cpu
