// AVX-512 (VNNI) pieces shared by the linear kernels' files: reading a panel's codes and scales,
// and one group against some rows. An operand is one register. Included by *_avx512.cc only;
// everything is local to the file that includes it (see linear_operands_avx2.h).
#pragma once

#include <immintrin.h>

#include "backend/cpu/linear_steps.h"

namespace invar::cpu {
namespace {

INVAR_INLINE __m512i load(const uint8_t* p) { return _mm512_load_si512(p); }
INVAR_INLINE __m512i broadcast32(const void* p) {
  int v;
  __builtin_memcpy(&v, p, 4);
  return _mm512_set1_epi32(v);
}
INVAR_INLINE __m128i bytes16(const uint8_t* p) {
  return _mm_load_si128(reinterpret_cast<const __m128i*>(p));
}
INVAR_INLINE __m512 halves(const uint8_t* p) {
  return _mm512_cvtph_ps(_mm256_load_si256(reinterpret_cast<const __m256i*>(p)));
}
INVAR_INLINE __m512 bytes_unsigned(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(bytes16(p)));
}
INVAR_INLINE __m512 bytes_signed(const uint8_t* p) {
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes16(p)));
}
INVAR_INLINE __m512 negative(__m512 v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.f)); }

// Operand t of a group, as unsigned bytes.
template <PanelKind kKind>
INVAR_INLINE __m512i operand(const Codes& codes, int t) {
  constexpr PanelLayout kLayout = layout_of(kKind);
  constexpr int kBits = kLayout.code_bits;
  if constexpr (kBits == 8) {
    return load(codes.main + t * 64);
  } else if constexpr (kBits >= 4) {
    __m512i v = load(codes.main + t / 2 * 64);
    if (t % 2 != 0) v = _mm512_srli_epi16(v, 4);
    v = _mm512_and_si512(v, _mm512_set1_epi8(15));
    if constexpr (kBits == 5) {
      __m512i e = load(codes.extra);
      e = t <= 4 ? _mm512_slli_epi16(e, static_cast<unsigned>(t))
                 : _mm512_srli_epi16(e, static_cast<unsigned>(8 - t));
      v = _mm512_or_si512(v, _mm512_and_si512(e, _mm512_set1_epi8(16)));
    } else if constexpr (kBits == 6) {
      __m512i e = load(codes.extra + t / 4 * 64);
      if (t % 4 == 1) e = _mm512_slli_epi16(e, 2);
      if (t % 4 == 2) e = _mm512_slli_epi16(e, 4);
      if (t % 4 == 3) e = _mm512_srli_epi16(e, 2);
      v = _mm512_or_si512(v, _mm512_and_si512(e, _mm512_set1_epi8(48)));
    }
    if constexpr (kLayout.table != CodeTable::kNone) {
      const uint8_t* table = kLayout.table == CodeTable::kIq4 ? kIq4Codes : kMxfp4Codes;
      const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
      v = _mm512_shuffle_epi8(_mm512_broadcast_i32x4(entries), v);
    }
    return v;
  } else {
    __m512i v = load(codes.main + t / 4 * 64);
    if (t % 4 != 0) v = _mm512_srli_epi16(v, static_cast<unsigned>(2 * (t % 4)));
    v = _mm512_and_si512(v, _mm512_set1_epi8(3));
    if constexpr (kBits == 3) {
      __m512i e = load(codes.extra);
      e = t <= 2 ? _mm512_slli_epi16(e, static_cast<unsigned>(t))
                 : _mm512_srli_epi16(e, static_cast<unsigned>(8 - t));
      v = _mm512_or_si512(v, _mm512_and_si512(e, _mm512_set1_epi8(4)));
    }
    return v;
  }
}

INVAR_INLINE __m512 mlx_values(const uint8_t* p, DType dtype, int first) {
  if (dtype == DType::kF16) return halves(p + first * 2);
  if (dtype == DType::kF32) return _mm512_load_ps(reinterpret_cast<const float*>(p) + first);
  const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(p + first * 2));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

// 2^(e - 128); 255 is NaN (linear_unpack.cc).
INVAR_INLINE __m512 half_e8m0(const uint8_t* p) {
  const __m512i e = _mm512_cvtepu8_epi32(bytes16(p));
  __m512i bits = _mm512_slli_epi32(_mm512_sub_epi32(e, _mm512_set1_epi32(1)), 23);
  bits = _mm512_mask_sllv_epi32(bits, _mm512_cmplt_epi32_mask(e, _mm512_set1_epi32(2)),
                                _mm512_set1_epi32(0x00200000), e);
  bits = _mm512_mask_mov_epi32(bits, _mm512_cmpeq_epi32_mask(e, _mm512_set1_epi32(255)),
                               _mm512_set1_epi32(0x7fc00000));
  return _mm512_castsi512_ps(bits);
}

// D and Dmin of a step of 256, loaded once.
struct StepScales {
  __m512 d, dmin;
};
template <PanelKind kKind>
INVAR_INLINE void load_step(const uint8_t* step, StepScales& out) {
  if constexpr (layout_of(kKind).step_k != 256) return;
  out.d = halves(step);
  out.dmin = halves(step + 32);
}

// Scale and bias of group b, half `sub` of its inputs. `bias` is untouched where the kind has none.
template <PanelKind kKind>
INVAR_INLINE void load_scales(const uint8_t* step, const StepScales& at_step, DType dtype, int b,
                              int sub, __m512& scale, __m512& bias) {
  const uint8_t* subs = step + 64;
  switch (kKind) {
    case PanelKind::kQ4_0:
    case PanelKind::kQ5_0:
    case PanelKind::kQ8_0:
    case PanelKind::kIQ4_NL:
      scale = halves(step + b * 32);
      break;
    case PanelKind::kQ4_1:
    case PanelKind::kQ5_1:
      scale = halves(step + b * 32);
      bias = halves(step + 64 + b * 32);
      break;
    case PanelKind::kMXFP4:
      scale = half_e8m0(step + b * 16);
      break;
    case PanelKind::kQ2_K: {
      const __m512i both = _mm512_cvtepu8_epi32(bytes16(subs + (b * 2 + sub) * 16));
      scale = _mm512_mul_ps(at_step.d,
                            _mm512_cvtepi32_ps(_mm512_and_si512(both, _mm512_set1_epi32(15))));
      bias = negative(_mm512_mul_ps(at_step.dmin, _mm512_cvtepi32_ps(_mm512_srli_epi32(both, 4))));
      break;
    }
    case PanelKind::kQ3_K:
    case PanelKind::kQ6_K:
      scale = _mm512_mul_ps(at_step.d, bytes_signed(subs + (b * 2 + sub) * 16));
      break;
    case PanelKind::kQ4_K:
    case PanelKind::kQ5_K:
      scale = _mm512_mul_ps(at_step.d, bytes_unsigned(subs + b * 32));
      bias = negative(_mm512_mul_ps(at_step.dmin, bytes_unsigned(subs + b * 32 + 16)));
      break;
    case PanelKind::kIQ4_XS:
      scale = _mm512_mul_ps(at_step.d, bytes_signed(subs + b * 16));
      break;
    default:
      scale = mlx_values(step, dtype, 0);
      bias = mlx_values(step, dtype, 16);
  }
}

// How far ahead panels are fetched, in bytes. An Intel Xeon with AVX-512 gains from 2 KiB over 1
// (Q6_K, one row: 1.3x), not from 4.
constexpr int kPrefetch = 2048;

// Calls body(step, at_step, b) for every group of the panel, in order; prefetches ahead, spread
// evenly over the groups.
template <PanelKind kKind, typename Body>
INVAR_INLINE void for_groups(const PanelRun& run, const Body& body) {
  const Steps<kKind> steps = Steps<kKind>::of(run);
  const uint8_t* step = run.panel;
  const int lines = (steps.bytes / 64 + steps.groups - 1) / steps.groups;
  for (int64_t g = 0; g < run.num_groups; g += steps.groups, step += steps.bytes) {
    StepScales at_step;
    load_step<kKind>(step, at_step);
    const int64_t left = run.num_groups - g;
    const int count = left < steps.groups ? static_cast<int>(left) : steps.groups;
    for (int b = 0; b < count; ++b) {
      for (int i = 0; i < lines; ++i)
        _mm_prefetch(reinterpret_cast<const char*>(step) + kPrefetch + (b * lines + i) * 64,
                     _MM_HINT_T0);
      body(step, at_step, b);
    }
  }
}

// Row m's integers of operand t meet the codes w: bytes in one instruction, or quads in two.
INVAR_INLINE __m512i dot(__m512i sum, __m512i w, const int8_t* q, int m, int t) {
  return _mm512_dpbusd_epi32(sum, w, broadcast32(q + m * kGroup + t * 4));
}
INVAR_INLINE __m512i dot(__m512i sum, __m512i w, const int16_t* q, int m, int t) {
  const int16_t* quad = q + m * kGroup + t * 4;
  sum = _mm512_dpwssd_epi32(sum, _mm512_and_si512(w, _mm512_set1_epi16(255)), broadcast32(quad));
  return _mm512_dpwssd_epi32(sum, _mm512_srli_epi16(w, 8), broadcast32(quad + 2));
}

// One group against kRows rows. Values: int8_t (bytes) or int16_t (quads); get(t) gives an operand,
// scales(sub, scale, bias) what the name says. The zero point of a symmetric kind is in the start
// value.
template <int kSubs, bool kAffine, int kRows, typename Value, typename Get, typename Scales>
INVAR_INLINE void group(__m512 (&acc)[kRows], const GroupSums& sums, int slot, int zero,
                        const Value* q, const Get& get, const Scales& scales) {
  INVAR_UNROLL for (int sub = 0; sub < kSubs; ++sub) {
    __m512i sum[kRows];
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
      if (kAffine) {
        sum[m] = _mm512_setzero_si512();
      } else {
        const int z = kSubs == 2 ? sums.sum_half[sub][slot + m] : sums.sum[slot + m];
        sum[m] = _mm512_set1_epi32(-zero * z);
      }
    }
    INVAR_UNROLL for (int i = 0; i < 8 / kSubs; ++i) {
      const int t = sub * 4 + i;
      const __m512i w = get(t);
      INVAR_UNROLL for (int m = 0; m < kRows; ++m) sum[m] = dot(sum[m], w, q, m, t);
    }
    __m512 scale, bias;
    scales(sub, scale, bias);
    INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
      const __m512 a = _mm512_set1_ps(sums.scale[slot + m]);
      acc[m] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(sum[m]), _mm512_mul_ps(scale, a), acc[m]);
      if (kAffine) {
        const float az =
            kSubs == 2 ? sums.scaled_sum_half[sub][slot + m] : sums.scaled_sum[slot + m];
        acc[m] = _mm512_fmadd_ps(bias, _mm512_set1_ps(az), acc[m]);
      }
    }
  }
}

// A panel read as it is packed.
template <PanelKind kKind, int kRows, typename Value>
INVAR_INLINE void panel(const PanelRun& run, const Value* q) {
  constexpr PanelLayout kLayout = layout_of(kKind);
  const Steps<kKind> steps = Steps<kKind>::of(run);
  __m512 acc[kRows];
  INVAR_UNROLL for (int m = 0; m < kRows; ++m) acc[m] = _mm512_setzero_ps();
  const GroupSums* sums = run.sums;
  for_groups<kKind>(run, [&](const uint8_t* step, const StepScales& at_step,
                             int b) __attribute__((always_inline)) {
    const Codes codes = steps.codes(step, b);
    group<kLayout.subs, kLayout.affine, kRows>(
        acc, *sums, run.first_slot, kLayout.zero, q,
        [&](int t) __attribute__((always_inline)) { return operand<kKind>(codes, t); },
        [&](int sub, __m512& scale, __m512& bias) __attribute__((always_inline)) {
          load_scales<kKind>(step, at_step, run.scale_dtype, b, sub, scale, bias);
        });
    ++sums;
    q += kTileSlots * kGroup;
  });
  INVAR_UNROLL for (int m = 0; m < kRows; ++m) _mm512_storeu_ps(run.out + m * kPanelRows, acc[m]);
}

}  // namespace
}  // namespace invar::cpu
