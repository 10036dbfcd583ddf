// AArch64 pieces shared by the linear kernels' files: reading a panel's codes and scales. An
// operand is four registers, v = 0 .. 3, register v holding lanes 4v .. 4v + 3. Included by
// *_neon.cc and
// *_i8mm.cc only; everything is local to the file that includes it, or the linker would mix code of
// the two sets.
#pragma once

#include <arm_neon.h>

#include "backend/cpu/linear_steps.h"

namespace invar::cpu {
namespace {

#ifdef __ARM_FEATURE_MATMUL_INT8
constexpr bool kI8mm = true;
#else
constexpr bool kI8mm = false;
#endif

// What is taken off the codes for the dot's sake: SDOT has signed bytes only, USDOT (i8mm) takes
// the codes as they are. 128 * (sum of q), exact, gives it back. Codes of up to 6 bits need none.
constexpr int shift_of(const PanelLayout& layout) {
  return !kI8mm && (layout.code_bits == 8 || layout.table == CodeTable::kIq4) ? 128 : 0;
}

// Shifts by a number that is constant once loops are unrolled.
INVAR_INLINE uint8x16_t shift_left(uint8x16_t v, int n) {
  switch (n) {
    case 1:
      return vshlq_n_u8(v, 1);
    case 2:
      return vshlq_n_u8(v, 2);
    case 3:
      return vshlq_n_u8(v, 3);
    case 4:
      return vshlq_n_u8(v, 4);
    default:
      return v;
  }
}
INVAR_INLINE uint8x16_t shift_right(uint8x16_t v, int n) {
  switch (n) {
    case 1:
      return vshrq_n_u8(v, 1);
    case 2:
      return vshrq_n_u8(v, 2);
    case 3:
      return vshrq_n_u8(v, 3);
    case 4:
      return vshrq_n_u8(v, 4);
    case 5:
      return vshrq_n_u8(v, 5);
    case 6:
      return vshrq_n_u8(v, 6);
    default:
      return v;
  }
}

// Bits of v under the mask are replaced by those of `bits`.
INVAR_INLINE uint8x16_t insert(uint8x16_t v, uint8x16_t bits, uint8_t mask) {
  return vbslq_u8(vdupq_n_u8(mask), bits, v);
}

// ---- Codes
// -----------------------------------------------------------------------------------------

// Register v of operand t, less shift_of(kind).
template <PanelKind kKind>
INVAR_INLINE uint8x16_t operand(const Codes& codes, int t, int v) {
  constexpr PanelLayout kLayout = layout_of(kKind);
  constexpr int kBits = kLayout.code_bits;
  constexpr int kShift = shift_of(kLayout);
  if constexpr (kBits == 8) {
    const uint8x16_t w = vld1q_u8(codes.main + t * 64 + v * 16);
    return kShift != 0 ? veorq_u8(w, vdupq_n_u8(128)) : w;
  } else if constexpr (kBits >= 4) {
    const uint8x16_t both = vld1q_u8(codes.main + t / 2 * 64 + v * 16);
    uint8x16_t w = t % 2 != 0 ? vshrq_n_u8(both, 4) : vandq_u8(both, vdupq_n_u8(15));
    if constexpr (kBits == 5) {
      const uint8x16_t e = vld1q_u8(codes.extra + v * 16);
      w = insert(w, t <= 4 ? shift_left(e, t) : shift_right(e, 8 - t), 16);
    } else if constexpr (kBits == 6) {
      const uint8x16_t e = vld1q_u8(codes.extra + t / 4 * 64 + v * 16);
      w = insert(w, t % 4 < 3 ? shift_left(e, 2 * (t % 4)) : shift_right(e, 2), 48);
    }
    if constexpr (kLayout.table != CodeTable::kNone) {
      uint8x16_t table = vld1q_u8(kLayout.table == CodeTable::kIq4 ? kIq4Codes : kMxfp4Codes);
      if (kShift != 0) table = veorq_u8(table, vdupq_n_u8(128));
      w = vqtbl1q_u8(table, w);
    }
    return w;
  } else {
    const uint8x16_t four = vld1q_u8(codes.main + t / 4 * 64 + v * 16);
    uint8x16_t w = shift_right(four, 2 * (t % 4));
    if (t % 4 != 3) w = vandq_u8(w, vdupq_n_u8(3));
    if constexpr (kBits == 3) {
      const uint8x16_t e = vld1q_u8(codes.extra + v * 16);
      w = insert(w, t <= 2 ? shift_left(e, t) : shift_right(e, 8 - t), 4);
    }
    return w;
  }
}

// ---- Scales: lanes 4v .. 4v + 3 of 16
// ----------------------------------------------------------------------------------------

INVAR_INLINE float32x4_t halves(const uint8_t* p, int v) {
  return vcvt_f32_f16(vreinterpret_f16_u8(vld1_u8(p + v * 8)));
}
INVAR_INLINE uint8x8_t four_bytes(const uint8_t* p, int v) {
  uint32_t word;
  __builtin_memcpy(&word, p + v * 4, 4);
  return vreinterpret_u8_u32(vdup_n_u32(word));
}
INVAR_INLINE uint32x4_t widened(const uint8_t* p, int v) {
  return vmovl_u16(vget_low_u16(vmovl_u8(four_bytes(p, v))));
}
INVAR_INLINE float32x4_t bytes_unsigned(const uint8_t* p, int v) {
  return vcvtq_f32_u32(widened(p, v));
}
INVAR_INLINE float32x4_t bytes_signed(const uint8_t* p, int v) {
  const int8x8_t bytes = vreinterpret_s8_u8(four_bytes(p, v));
  return vcvtq_f32_s32(vmovl_s16(vget_low_s16(vmovl_s8(bytes))));
}

INVAR_INLINE float32x4_t bf16(const uint8_t* p, int v) {
  const uint16x4_t bits = vreinterpret_u16_u8(vld1_u8(p + v * 8));
  return vreinterpretq_f32_u32(vshlq_n_u32(vmovl_u16(bits), 16));
}

INVAR_INLINE float32x4_t mlx_values(const uint8_t* p, DType dtype, int first, int v) {
  if (dtype == DType::kF16) return halves(p + first * 2, v);
  if (dtype == DType::kF32) return vreinterpretq_f32_u8(vld1q_u8(p + first * 4 + v * 16));
  return bf16(p + first * 2, v);
}

// 2^(e - 128); 255 is NaN (linear_unpack.cc).
INVAR_INLINE float32x4_t half_e8m0(const uint8_t* p, int v) {
  const uint32x4_t e = widened(p, v);
  uint32x4_t bits = vshlq_n_u32(vsubq_u32(e, vdupq_n_u32(1)), 23);
  const uint32x4_t tiny = vshlq_u32(vdupq_n_u32(0x00200000), vreinterpretq_s32_u32(e));
  bits = vbslq_u32(vcltq_u32(e, vdupq_n_u32(2)), tiny, bits);
  bits = vbslq_u32(vceqq_u32(e, vdupq_n_u32(255)), vdupq_n_u32(0x7fc00000), bits);
  return vreinterpretq_f32_u32(bits);
}

// Scale and bias of group b, half `sub` of its inputs. `bias` is untouched where the kind has none.
template <PanelKind kKind>
INVAR_INLINE void load_scales(const uint8_t* step, DType dtype, int b, int sub, int v,
                              float32x4_t& scale, float32x4_t& bias) {
  const uint8_t* subs = step + 64;
  switch (kKind) {
    case PanelKind::kQ4_0:
    case PanelKind::kQ5_0:
    case PanelKind::kQ8_0:
    case PanelKind::kIQ4_NL:
      scale = halves(step + b * 32, v);
      break;
    case PanelKind::kQ4_1:
    case PanelKind::kQ5_1:
      scale = halves(step + b * 32, v);
      bias = halves(step + 64 + b * 32, v);
      break;
    case PanelKind::kMXFP4:
      scale = half_e8m0(step + b * 16, v);
      break;
    case PanelKind::kQ2_K: {
      const uint32x4_t both = widened(subs + (b * 2 + sub) * 16, v);
      scale = vmulq_f32(halves(step, v), vcvtq_f32_u32(vandq_u32(both, vdupq_n_u32(15))));
      bias = vnegq_f32(vmulq_f32(halves(step + 32, v), vcvtq_f32_u32(vshrq_n_u32(both, 4))));
      break;
    }
    case PanelKind::kQ3_K:
    case PanelKind::kQ6_K:
      scale = vmulq_f32(halves(step, v), bytes_signed(subs + (b * 2 + sub) * 16, v));
      break;
    case PanelKind::kQ4_K:
    case PanelKind::kQ5_K:
      scale = vmulq_f32(halves(step, v), bytes_unsigned(subs + b * 32, v));
      bias = vnegq_f32(vmulq_f32(halves(step + 32, v), bytes_unsigned(subs + b * 32 + 16, v)));
      break;
    case PanelKind::kIQ4_XS:
      scale = vmulq_f32(halves(step, v), bytes_signed(subs + b * 16, v));
      break;
    default:
      scale = mlx_values(step, dtype, 0, v);
      bias = mlx_values(step, dtype, 16, v);
  }
}

// Calls body(step, b) for every group of the panel, in order.
template <PanelKind kKind, typename Body>
INVAR_INLINE void for_groups(const PanelRun& run, const Body& body) {
  const Steps<kKind> steps = Steps<kKind>::of(run);
  const uint8_t* step = run.panel;
  for (int64_t g = 0; g < run.num_groups; g += steps.groups, step += steps.bytes) {
    const int64_t left = run.num_groups - g;
    const int count = left < steps.groups ? static_cast<int>(left) : steps.groups;
    for (int b = 0; b < count; ++b) body(step, b);
  }
}

}  // namespace
}  // namespace invar::cpu
