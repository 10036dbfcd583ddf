// One row of activations to integers (LinearKernels::quantize_row); the steps are those of
// linear_portable.cc, the form of 12-bit values is linear_neon.h's.
#include <arm_neon.h>

#include "backend/cpu/linear_neon.h"

#define INVAR_UNROLL _Pragma("GCC unroll 8")

namespace invar::cpu::neon {

bool quantize_row(const float* x, int64_t num_groups, int bits, const ActivationTile& tile,
                  int slot) {
  const float limit = bits == 8 ? 127.f : 2047.f;
  bool finite = true;
  for (int64_t g = 0; g < num_groups; ++g, x += kGroup) {
    float32x4_t v[8];
    uint32x4_t largest = vdupq_n_u32(0);
    INVAR_UNROLL for (int i = 0; i < 8; ++i) {
      v[i] = vld1q_f32(x + i * 4);
      largest = vmaxq_u32(largest, vreinterpretq_u32_f32(vabsq_f32(v[i])));
    }
    const uint32_t amax_bits = vmaxvq_u32(largest);
    const bool group_finite = amax_bits < 0x7f800000;
    finite = finite && group_finite;
    const float amax = __builtin_bit_cast(float, amax_bits);
    float inverse = group_finite && amax > 0 ? limit / amax : 0.f;
    if (!(inverse <= 3.402823466e38f)) inverse = 0.f;
    const float scale = inverse > 0 ? amax / limit : 0.f;
    if (inverse == 0) INVAR_UNROLL for (int i = 0; i < 8; ++i) v[i] = vdupq_n_f32(0);

    int16x8_t words[4];
    INVAR_UNROLL for (int i = 0; i < 4; ++i) words[i] =
        vcombine_s16(vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[2 * i], inverse))),
                     vqmovn_s32(vcvtnq_s32_f32(vmulq_n_f32(v[2 * i + 1], inverse))));

    const int64_t entry = g * kTileSlots + slot;
    if (tile.bytes != nullptr)
      INVAR_UNROLL for (int i = 0; i < 2; ++i)
          vst1q_s8(tile.bytes + entry * kGroup + i * 16,
                   vcombine_s8(vqmovn_s16(words[2 * i]), vqmovn_s16(words[2 * i + 1])));
    if (tile.quads != nullptr) {
      int8_t* out = reinterpret_cast<int8_t*>(tile.quads + entry * kGroup);
      INVAR_UNROLL for (int i = 0; i < 4; ++i) {
        const int16x8_t high = vrshrq_n_s16(words[i], 7);
        vst1_s8(out + i * 8, vmovn_s16(vsubq_s16(words[i], vshlq_n_s16(high, 7))));
        vst1_s8(out + kGroup + i * 8, vmovn_s16(high));
      }
    }

    GroupSums& sums = tile.sums[g];
    int32_t half[2];
    for (int h = 0; h < 2; ++h) {
      half[h] = vaddlvq_s16(vaddq_s16(words[2 * h], words[2 * h + 1]));
      sums.sum_half[h][slot] = half[h];
      sums.scaled_sum_half[h][slot] = scale * static_cast<float>(half[h]);
    }
    sums.scale[slot] = scale;
    sums.sum[slot] = half[0] + half[1];
    sums.scaled_sum[slot] = scale * static_cast<float>(half[0] + half[1]);
  }
  return finite;
}

}  // namespace invar::cpu::neon
