// Pieces that the linear kernels of 256-bit sets share: reading a panel's codes and scales, walking
// its groups. Included by *_avx2.cc and *_avxvnni.cc only; everything is local to the file that
// includes it, because the same function compiled for another instruction set must never be linked
// in its place.
#pragma once

#include <immintrin.h>

#include "backend/cpu/linear_steps.h"

namespace invar::cpu {
namespace {

INVAR_INLINE __m256i load(const uint8_t* p) {
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(p));
}
INVAR_INLINE __m256i broadcast32(const void* p) {
  int v;
  __builtin_memcpy(&v, p, 4);
  return _mm256_set1_epi32(v);
}
INVAR_INLINE __m256 halves(const uint8_t* p) {
  return _mm256_cvtph_ps(_mm_load_si128(reinterpret_cast<const __m128i*>(p)));
}
INVAR_INLINE __m256 bytes_unsigned(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
INVAR_INLINE __m256 bytes_signed(const uint8_t* p) {
  return _mm256_cvtepi32_ps(
      _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}

// Keeps GCC from gathering all broadcasts of a group ahead of the dots and spilling them: a
// broadcast load is free beside a dot, a spill is not.
template <int kRows>
INVAR_INLINE void keep_order(__m256i (&sum)[kRows][2]) {
  if constexpr (kRows == 1) return;
  INVAR_UNROLL for (int m = 0; m < kRows; ++m)
      INVAR_UNROLL for (int h = 0; h < 2; ++h) asm volatile("" : "+x"(sum[m][h]) : : "memory");
}

// Operand t, half h (lanes 8h .. 8h + 7) of a group, as unsigned bytes.
template <PanelKind kKind>
INVAR_INLINE __m256i operand(const Codes& codes, int t, int h) {
  constexpr PanelLayout kLayout = layout_of(kKind);
  constexpr int kBits = kLayout.code_bits;
  if constexpr (kBits == 8) {
    return load(codes.main + t * 64 + h * 32);
  } else if constexpr (kBits >= 4) {
    __m256i v = load(codes.main + t / 2 * 64 + h * 32);
    if (t % 2 != 0) v = _mm256_srli_epi16(v, 4);
    v = _mm256_and_si256(v, _mm256_set1_epi8(15));
    if constexpr (kBits == 5) {
      __m256i e = load(codes.extra + h * 32);
      e = t <= 4 ? _mm256_slli_epi16(e, t) : _mm256_srli_epi16(e, 8 - t);
      v = _mm256_or_si256(v, _mm256_and_si256(e, _mm256_set1_epi8(16)));
    } else if constexpr (kBits == 6) {
      __m256i e = load(codes.extra + t / 4 * 64 + h * 32);
      if (t % 4 == 1) e = _mm256_slli_epi16(e, 2);
      if (t % 4 == 2) e = _mm256_slli_epi16(e, 4);
      if (t % 4 == 3) e = _mm256_srli_epi16(e, 2);
      v = _mm256_or_si256(v, _mm256_and_si256(e, _mm256_set1_epi8(48)));
    }
    if constexpr (kLayout.table != CodeTable::kNone) {
      const uint8_t* table = kLayout.table == CodeTable::kIq4 ? kIq4Codes : kMxfp4Codes;
      const __m128i entries = _mm_loadu_si128(reinterpret_cast<const __m128i*>(table));
      v = _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(entries), v);
    }
    return v;
  } else {
    __m256i v = load(codes.main + t / 4 * 64 + h * 32);
    if (t % 4 != 0) v = _mm256_srli_epi16(v, 2 * (t % 4));
    v = _mm256_and_si256(v, _mm256_set1_epi8(3));
    if constexpr (kBits == 3) {
      __m256i e = load(codes.extra + h * 32);
      e = t <= 2 ? _mm256_slli_epi16(e, t) : _mm256_srli_epi16(e, 8 - t);
      v = _mm256_or_si256(v, _mm256_and_si256(e, _mm256_set1_epi8(4)));
    }
    return v;
  }
}

INVAR_INLINE __m256 mlx_values(const uint8_t* p, DType dtype, int first) {
  if (dtype == DType::kF16) return halves(p + first * 2);
  if (dtype == DType::kF32) return _mm256_load_ps(reinterpret_cast<const float*>(p) + first);
  const __m128i bits = _mm_load_si128(reinterpret_cast<const __m128i*>(p + first * 2));
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}

// 2^(e - 128); 255 is NaN (linear_unpack.cc).
INVAR_INLINE __m256 half_e8m0(const uint8_t* p) {
  const __m256i e = _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
  const __m256i small = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
  const __m256i nan = _mm256_set1_epi32(0x7fc00000);
  __m256i bits = _mm256_blendv_epi8(normal, small, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e));
  bits = _mm256_blendv_epi8(bits, nan, _mm256_cmpeq_epi32(e, _mm256_set1_epi32(255)));
  return _mm256_castsi256_ps(bits);
}

// D and Dmin of a step of 256, loaded once.
struct StepScales {
  __m256 d[2], dmin[2];
};
template <PanelKind kKind>
INVAR_INLINE void load_step(const uint8_t* step, StepScales& out) {
  if constexpr (layout_of(kKind).step_k != 256) return;
  INVAR_UNROLL for (int h = 0; h < 2; ++h) {
    out.d[h] = halves(step + h * 16);
    out.dmin[h] = halves(step + 32 + h * 16);
  }
}

// Scale and bias of group b, half `sub` of its inputs, lanes 8h ... `bias` is untouched where the
// kind has none.
template <PanelKind kKind>
INVAR_INLINE void load_scales(const uint8_t* step, const StepScales& at_step, DType dtype, int b,
                              int sub, int h, __m256& scale, __m256& bias) {
  const uint8_t* subs = step + 64 + h * 8;
  const __m256 minus = _mm256_set1_ps(-0.f);
  switch (kKind) {
    case PanelKind::kQ4_0:
    case PanelKind::kQ5_0:
    case PanelKind::kQ8_0:
    case PanelKind::kIQ4_NL:
      scale = halves(step + b * 32 + h * 16);
      break;
    case PanelKind::kQ4_1:
    case PanelKind::kQ5_1:
      scale = halves(step + b * 32 + h * 16);
      bias = halves(step + 64 + b * 32 + h * 16);
      break;
    case PanelKind::kMXFP4:
      scale = half_e8m0(step + b * 16 + h * 8);
      break;
    case PanelKind::kQ2_K: {
      const __m256i both = _mm256_cvtepu8_epi32(
          _mm_loadl_epi64(reinterpret_cast<const __m128i*>(subs + (b * 2 + sub) * 16)));
      scale = _mm256_mul_ps(at_step.d[h],
                            _mm256_cvtepi32_ps(_mm256_and_si256(both, _mm256_set1_epi32(15))));
      bias = _mm256_xor_ps(
          minus, _mm256_mul_ps(at_step.dmin[h], _mm256_cvtepi32_ps(_mm256_srli_epi32(both, 4))));
      break;
    }
    case PanelKind::kQ3_K:
    case PanelKind::kQ6_K:
      scale = _mm256_mul_ps(at_step.d[h], bytes_signed(subs + (b * 2 + sub) * 16));
      break;
    case PanelKind::kQ4_K:
    case PanelKind::kQ5_K:
      scale = _mm256_mul_ps(at_step.d[h], bytes_unsigned(subs + b * 32));
      bias =
          _mm256_xor_ps(minus, _mm256_mul_ps(at_step.dmin[h], bytes_unsigned(subs + b * 32 + 16)));
      break;
    case PanelKind::kIQ4_XS:
      scale = _mm256_mul_ps(at_step.d[h], bytes_signed(subs + b * 16));
      break;
    default:
      scale = mlx_values(step, dtype, h * 8);
      bias = mlx_values(step, dtype, 16 + h * 8);
  }
}

// How far ahead panels are fetched, in bytes. On Zen 3, one row, cold, 3 KiB against 1 KiB makes
// Q4_1 1.1x, Q5_0 and Q6_K 1.2x to 1.4x as quick; 4 KiB is no better.
constexpr int kPrefetch = 3072;

// Calls body(codes, step, at_step, b) for every group of the panel, in order; prefetches ahead,
// spread evenly over the groups.
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
      body(steps.codes(step, b), step, at_step, b);
    }
  }
}

// What an unpacked group offers.
INVAR_INLINE __m256i block_operand(const GroupBlock& block, int t, int h) {
  return load(block.operands[t] + h * 32);
}
INVAR_INLINE void block_scales(const GroupBlock& block, int sub, int h, __m256& scale,
                               __m256& bias) {
  scale = _mm256_load_ps(block.scales[sub] + h * 8);
  bias = _mm256_load_ps(block.biases[sub] + h * 8);
}

template <int kRows>
INVAR_INLINE void clear(__m256 (&acc)[kRows][2]) {
  INVAR_UNROLL for (int m = 0; m < kRows; ++m) acc[m][0] = acc[m][1] = _mm256_setzero_ps();
}
template <int kRows>
INVAR_INLINE void store(float* out, const __m256 (&acc)[kRows][2]) {
  INVAR_UNROLL for (int m = 0; m < kRows; ++m) {
    _mm256_storeu_ps(out + m * kPanelRows, acc[m][0]);
    _mm256_storeu_ps(out + m * kPanelRows + 8, acc[m][1]);
  }
}

}  // namespace
}  // namespace invar::cpu
