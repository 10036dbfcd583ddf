// unpack_group: one group of a panel as plain codes and fp32 scales. The readable form of the
// layouts in panels.h; the portable kernels and the embedding lookup run on it.
#include <bit>
#include <cstring>

#include "backend/cpu/linear_kernels.h"
#include "tensor/quant.h"

namespace invar::cpu {
namespace {

constexpr int kSubScales = 64;

// fp16 to fp32 in a form that compilers vectorise: the exponent is moved by an exact product, which
// also makes subnormals right.
float half_at(const uint8_t* p, int index) {
  uint16_t bits;
  std::memcpy(&bits, p + 2 * index, 2);
  const uint32_t magnitude = (bits & 0x7fffu) << 13;
  const uint32_t special = magnitude >= 0x0f800000u ? 0x7f800000u : 0u;  // inf and NaN
  const uint32_t moved = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) * 0x1p112f);
  return std::bit_cast<float>(moved | special | (bits & 0x8000u) << 16);
}

void halves_at(const uint8_t* p, int first, float* out) {
  for (int lane = 0; lane < kPanelRows; ++lane) out[lane] = half_at(p, first + lane);
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

// 64 bytes at a time as eight 64-bit words: shifts move bits over byte borders, the mask drops
// them.
template <typename Combine>
void each_word(uint8_t* out, const Combine& combine) {
  for (int i = 0; i < 64; i += 8) {
    const uint64_t word = combine(i);
    std::memcpy(out + i, &word, 8);
  }
}

uint64_t word_at(const uint8_t* p) {
  uint64_t word;
  std::memcpy(&word, p, 8);
  return word;
}

constexpr uint64_t every_byte(uint64_t value) { return value * 0x0101010101010101u; }

void unpack_codes(const PanelLayout& layout, const uint8_t* main, const uint8_t* extra,
                  uint8_t (*operands)[64]) {
  const int bits = layout.code_bits;
  for (int t = 0; t < 8; ++t) {
    uint8_t* out = operands[t];
    if (bits == 8) {
      std::memcpy(out, main + t * 64, 64);
    } else if (bits >= 4) {
      const uint8_t* from = main + t / 2 * 64;
      const int shift = t % 2 * 4;
      each_word(out, [&](int i) { return (word_at(from + i) >> shift) & every_byte(15); });
    } else {
      const uint8_t* from = main + t / 4 * 64;
      const int shift = t % 4 * 2;
      each_word(out, [&](int i) { return (word_at(from + i) >> shift) & every_byte(3); });
    }
    if (bits == 3 || bits == 5) {
      const int at = (bits - 1 - t) & 7;
      each_word(out, [&](int i) {
        return word_at(out + i) | ((word_at(extra + i) >> at) & every_byte(1)) << (bits - 1);
      });
    } else if (bits == 6) {
      const uint8_t* from = extra + t / 4 * 64;
      const int at = (4 - 2 * (t % 4)) & 7;
      each_word(out, [&](int i) {
        return word_at(out + i) | ((word_at(from + i) >> at) & every_byte(3)) << 4;
      });
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

  const uint8_t* subs = step + kSubScales;
  float(*const s)[kPanelRows] = out.scales;
  float(*const b)[kPanelRows] = out.biases;
  float d[kPanelRows], dmin[kPanelRows];
  if (layout.step_k == 256) {
    halves_at(step, 0, d);
    halves_at(step, 16, dmin);
  }
  switch (kind) {
    case PanelKind::kQ4_0:
    case PanelKind::kQ5_0:
    case PanelKind::kQ8_0:
    case PanelKind::kIQ4_NL:
      halves_at(step, group * 16, s[0]);
      break;
    case PanelKind::kQ4_1:
    case PanelKind::kQ5_1:
      halves_at(step, group * 16, s[0]);
      halves_at(step + 64, group * 16, b[0]);
      break;
    case PanelKind::kMXFP4:
      for (int lane = 0; lane < kPanelRows; ++lane) s[0][lane] = half_e8m0(step[group * 16 + lane]);
      break;
    case PanelKind::kQ2_K:
      for (int i = 0; i < 2; ++i)
        for (int lane = 0; lane < kPanelRows; ++lane) {
          const uint8_t sub = subs[(group * 2 + i) * 16 + lane];
          s[i][lane] = d[lane] * static_cast<float>(sub & 15);
          b[i][lane] = -(dmin[lane] * static_cast<float>(sub >> 4));
        }
      break;
    case PanelKind::kQ3_K:
    case PanelKind::kQ6_K:
      for (int i = 0; i < 2; ++i)
        for (int lane = 0; lane < kPanelRows; ++lane)
          s[i][lane] =
              d[lane] * static_cast<float>(static_cast<int8_t>(subs[(group * 2 + i) * 16 + lane]));
      break;
    case PanelKind::kQ4_K:
    case PanelKind::kQ5_K:
      for (int lane = 0; lane < kPanelRows; ++lane) {
        s[0][lane] = d[lane] * static_cast<float>(subs[group * 32 + lane]);
        b[0][lane] = -(dmin[lane] * static_cast<float>(subs[group * 32 + 16 + lane]));
      }
      break;
    case PanelKind::kIQ4_XS:
      for (int lane = 0; lane < kPanelRows; ++lane)
        s[0][lane] = d[lane] * static_cast<float>(static_cast<int8_t>(subs[group * 16 + lane]));
      break;
    default:  // MLX
      for (int lane = 0; lane < kPanelRows; ++lane) {
        s[0][lane] = mlx_scale(step, scale_dtype, lane);
        b[0][lane] = mlx_scale(step, scale_dtype, 16 + lane);
      }
  }
}

}  // namespace invar::cpu
