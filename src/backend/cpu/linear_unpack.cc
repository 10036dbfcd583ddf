// unpack_group: one group of a panel as plain codes and fp32 scales. The readable form of the
// layouts in panels.h; the portable kernels and the embedding lookup run on it.
#include <bit>
#include <cstring>

#include "backend/cpu/linear_kernels.h"
#include "tensor/quant.h"

namespace invar::cpu {
namespace {

constexpr int kSubScales = 64;

float half_at(const uint8_t* p, int index) {
  uint16_t bits;
  std::memcpy(&bits, p + 2 * index, 2);
  return f16_to_f32(bits);
}

// 2^(e - 128): half of E8M0's value, since the codes are doubled. 255 is E8M0's NaN.
float half_e8m0(uint8_t e) {
  if (e == 255) return std::bit_cast<float>(0x7fc00000u);
  return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (uint32_t{e} - 1) << 23);
}

float mlx_scale(const uint8_t* p, DType dtype, int index) {
  if (dtype == DType::kF16) return half_at(p, index);
  if (dtype == DType::kBF16) {
    uint16_t bits;
    std::memcpy(&bits, p + 2 * index, 2);
    return bf16_to_f32(bits);
  }
  float value;
  std::memcpy(&value, p + 4 * index, 4);
  return value;
}

void unpack_codes(const PanelLayout& layout, const uint8_t* main, const uint8_t* extra,
                  uint8_t (*operands)[64]) {
  const int bits = layout.code_bits;
  for (int t = 0; t < 8; ++t) {
    uint8_t* out = operands[t];
    if (bits == 8) {
      std::memcpy(out, main + t * 64, 64);
    } else if (bits >= 4) {
      const int shift = t % 2 * 4;
      for (int i = 0; i < 64; ++i) out[i] = (main[t / 2 * 64 + i] >> shift) & 15;
    } else {
      const int shift = t % 4 * 2;
      for (int i = 0; i < 64; ++i) out[i] = (main[t / 4 * 64 + i] >> shift) & 3;
    }
    if (bits == 3 || bits == 5) {
      const int at = (bits - 1 - t) & 7;
      for (int i = 0; i < 64; ++i)
        out[i] |= static_cast<uint8_t>(((extra[i] >> at) & 1) << (bits - 1));
    } else if (bits == 6) {
      const int at = (4 - 2 * (t % 4)) & 7;
      for (int i = 0; i < 64; ++i)
        out[i] |= static_cast<uint8_t>(((extra[t / 4 * 64 + i] >> at) & 3) << 4);
    }
  }
  if (layout.table == CodeTable::kNone) return;
  const uint8_t* table = layout.table == CodeTable::kIq4 ? kIq4Codes : kMxfp4Codes;
  for (int t = 0; t < 8; ++t)
    for (int i = 0; i < 64; ++i) operands[t][i] = table[operands[t][i]];
}

}  // namespace

void unpack_group(PanelKind kind, DType scale_dtype, int groups_per_step, const uint8_t* step,
                  int group, GroupBlock& out) {
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(kind)];
  int scale_bytes = layout.scale_bytes;
  if (scale_bytes == 0) scale_bytes = scale_dtype == DType::kF32 ? 128 : 64;
  const int main_bytes = kMainBytes[layout.code_bits], extra_bytes = kExtraBytes[layout.code_bits];
  const uint8_t* codes = step + scale_bytes;
  unpack_codes(layout, codes + group * main_bytes,
               codes + groups_per_step * main_bytes + group * extra_bytes, out.operands);

  for (int lane = 0; lane < kPanelRows; ++lane) {
    const uint8_t* subs = step + kSubScales + lane;
    float(*const s)[kPanelRows] = out.scales;
    float(*const b)[kPanelRows] = out.biases;
    switch (kind) {
      case PanelKind::kQ4_0:
      case PanelKind::kQ5_0:
      case PanelKind::kQ8_0:
      case PanelKind::kIQ4_NL:
        s[0][lane] = half_at(step, group * 16 + lane);
        break;
      case PanelKind::kQ4_1:
      case PanelKind::kQ5_1:
        s[0][lane] = half_at(step, group * 16 + lane);
        b[0][lane] = half_at(step + 64, group * 16 + lane);
        break;
      case PanelKind::kMXFP4:
        s[0][lane] = half_e8m0(step[group * 16 + lane]);
        break;
      case PanelKind::kQ2_K:
        for (int i = 0; i < 2; ++i) {
          const uint8_t sub = subs[(group * 2 + i) * 16];
          s[i][lane] = half_at(step, lane) * static_cast<float>(sub & 15);
          b[i][lane] = -(half_at(step, 16 + lane) * static_cast<float>(sub >> 4));
        }
        break;
      case PanelKind::kQ3_K:
      case PanelKind::kQ6_K:
        for (int i = 0; i < 2; ++i)
          s[i][lane] = half_at(step, lane) *
                       static_cast<float>(static_cast<int8_t>(subs[(group * 2 + i) * 16]));
        break;
      case PanelKind::kQ4_K:
      case PanelKind::kQ5_K:
        s[0][lane] = half_at(step, lane) * static_cast<float>(subs[group * 32]);
        b[0][lane] = -(half_at(step, 16 + lane) * static_cast<float>(subs[group * 32 + 16]));
        break;
      case PanelKind::kIQ4_XS:
        s[0][lane] =
            half_at(step, lane) * static_cast<float>(static_cast<int8_t>(subs[group * 16]));
        break;
      default:  // MLX
        s[0][lane] = mlx_scale(step, scale_dtype, lane);
        b[0][lane] = mlx_scale(step, scale_dtype, 16 + lane);
    }
  }
}

}  // namespace invar::cpu
