// The block formats of specs/weights.md 3.3 and 2.1, taken apart: integer codes go to operand
// order, scales to the scale section. Nothing is computed but bit moves (and the + 128 of signed
// bytes).
#include "backend/cpu/pack_lane.h"

#include <cstring>

namespace invar::cpu {
namespace {

constexpr int kMaxStep = 256;

uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
void store32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

// A destination step; scale entries are addressed by vector of 16 lanes.
struct Lane {
  const PanelFormat& format;
  uint8_t* step;
  int lane;

  // Entry `index` of a section of 16-lane vectors with `width` bytes a lane, beginning at `offset`.
  uint8_t* at(int offset, int index, int width) const {
    return step + offset + (index * kPanelRows + lane) * width;
  }
  void put16(int offset, int index, const uint8_t* value) const {
    std::memcpy(at(offset, index, 2), value, 2);
  }
  void put8(int offset, int index, int value) const {
    *at(offset, index, 1) = static_cast<uint8_t>(value);
  }
};

// codes: one byte a weight, [num_groups][32]. Four neighbours (one operand of this lane) move as
// one 32-bit word; no shift crosses a byte because the bits that leave are masked before.
void put_codes(const Lane& out, const uint8_t* codes, int num_groups) {
  const PanelFormat& format = out.format;
  const int bits = kPanelLayouts[static_cast<int>(format.kind)].code_bits;
  const int main_bytes = kMainBytes[bits], extra_bytes = kExtraBytes[bits];
  const int groups_per_step = format.step_k / kGroup;
  for (int g = 0; g < num_groups; ++g) {
    uint8_t* main = out.step + format.scale_bytes + g * main_bytes + out.lane * 4;
    uint8_t* extra = out.step + format.scale_bytes + groups_per_step * main_bytes +
                     g * extra_bytes + out.lane * 4;
    uint32_t operand[8];
    for (int t = 0; t < 8; ++t) operand[t] = load32(codes + g * kGroup + t * 4);
    if (bits == 8) {
      for (int t = 0; t < 8; ++t) store32(main + t * 64, operand[t]);
    } else if (bits >= 4) {
      for (int j = 0; j < 4; ++j)
        store32(main + j * 64, (operand[2 * j] & 0x0f0f0f0f) | (operand[2 * j + 1] & 0x0f0f0f0f)
                                                                   << 4);
    } else {
      for (int p = 0; p < 2; ++p) {
        uint32_t plane = 0;
        for (int i = 0; i < 4; ++i) plane |= (operand[4 * p + i] & 0x03030303) << (2 * i);
        store32(main + p * 64, plane);
      }
    }
    if (bits == 3 || bits == 5) {
      uint32_t plane = 0;
      for (int t = 0; t < 8; ++t)
        plane |= ((operand[t] >> (bits - 1)) & 0x01010101) << ((bits - 1 - t) & 7);
      store32(extra, plane);
    } else if (bits == 6) {
      for (int p = 0; p < 2; ++p) {
        uint32_t plane = 0;
        for (int i = 0; i < 4; ++i)
          plane |= ((operand[4 * p + i] >> 4) & 0x03030303) << ((4 - 2 * i) & 7);
        store32(extra + p * 64, plane);
      }
    }
  }
}

// ---- GGUF blocks of 32: 16 bytes of nibbles hold elements 0..15 (low) and 16..31 (high)
// -------------

void nibbles_32(const uint8_t* qs, uint8_t* codes) {
  for (int j = 0; j < 16; ++j) {
    codes[j] = qs[j] & 15;
    codes[j + 16] = qs[j] >> 4;
  }
}

void fifth_bits_32(const uint8_t* qh, uint8_t* codes) {
  const uint32_t high = load32(qh);
  for (int e = 0; e < 32; ++e) codes[e] |= static_cast<uint8_t>(((high >> e) & 1) << 4);
}

// Block `b` of a step.
void block_32(PanelKind kind, const uint8_t* block, int b, const Lane& out, uint8_t* codes) {
  constexpr int kMins = 64;  // after 2 x 16 fp16 scales
  switch (kind) {
    case PanelKind::kQ4_0:
    case PanelKind::kIQ4_NL:
      out.put16(0, b, block);
      nibbles_32(block + 2, codes);
      break;
    case PanelKind::kQ4_1:
      out.put16(0, b, block);
      out.put16(kMins, b, block + 2);
      nibbles_32(block + 4, codes);
      break;
    case PanelKind::kQ5_0:
      out.put16(0, b, block);
      nibbles_32(block + 6, codes);
      fifth_bits_32(block + 2, codes);
      break;
    case PanelKind::kQ5_1:
      out.put16(0, b, block);
      out.put16(kMins, b, block + 2);
      nibbles_32(block + 8, codes);
      fifth_bits_32(block + 4, codes);
      break;
    case PanelKind::kQ8_0:
      out.put16(0, b, block);
      for (int e = 0; e < 32; ++e) codes[e] = block[2 + e] ^ 0x80;
      break;
    default:  // kMXFP4
      out.put8(0, b, block[0]);
      nibbles_32(block + 1, codes);
  }
}

// ---- GGUF blocks of 256
// ----------------------------------------------------------------------------

constexpr int kSubScales = 64;  // after D and Dmin, or D and padding

void q2_k(const uint8_t* block, const Lane& out, uint8_t* codes) {
  out.put16(0, 0, block + 80);
  out.put16(0, 1, block + 82);
  for (int k = 0; k < 16; ++k) out.put8(kSubScales, k, block[k]);
  for (int e = 0; e < 256; ++e)
    codes[e] = (block[16 + 32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
}

void q3_k(const uint8_t* block, const Lane& out, uint8_t* codes) {
  const uint8_t *high_mask = block, *qs = block + 32, *scales = block + 96;
  out.put16(0, 0, block + 108);
  for (int k = 0; k < 16; ++k) {
    const int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
    const int high = (scales[8 + k % 4] >> (2 * (k / 4))) & 3;
    out.put8(kSubScales, k, (low | high << 4) - 32);
  }
  for (int e = 0; e < 256; ++e) {
    const int low = (qs[32 * (e / 128) + e % 32] >> (2 * (e % 128 / 32))) & 3;
    codes[e] = static_cast<uint8_t>(low | ((high_mask[e % 32] >> (e / 32)) & 1) << 2);
  }
}

// Sub-scales and minimums of Q4_K and Q5_K: eight pairs of 6 bits in 12 bytes.
void scales_and_mins(const uint8_t* s, const Lane& out) {
  for (int k = 0; k < 8; ++k) {
    const int scale = k < 4 ? s[k] & 63 : (s[k + 4] & 15) | (s[k - 4] >> 6) << 4;
    const int min = k < 4 ? s[k + 4] & 63 : (s[k + 4] >> 4) | (s[k] >> 6) << 4;
    out.put8(kSubScales, 2 * k, scale);
    out.put8(kSubScales, 2 * k + 1, min);
  }
}

void nibbles_k(const uint8_t* qs, uint8_t* codes) {
  for (int e = 0; e < 256; ++e) codes[e] = (qs[32 * (e / 64) + e % 32] >> (e % 64 / 32 * 4)) & 15;
}

void q4_k(const uint8_t* block, const Lane& out, uint8_t* codes) {
  out.put16(0, 0, block);
  out.put16(0, 1, block + 2);
  scales_and_mins(block + 4, out);
  nibbles_k(block + 16, codes);
}

void q5_k(const uint8_t* block, const Lane& out, uint8_t* codes) {
  out.put16(0, 0, block);
  out.put16(0, 1, block + 2);
  scales_and_mins(block + 4, out);
  nibbles_k(block + 48, codes);
  for (int e = 0; e < 256; ++e)
    codes[e] |= static_cast<uint8_t>(((block[16 + e % 32] >> (e / 32)) & 1) << 4);
}

void q6_k(const uint8_t* block, const Lane& out, uint8_t* codes) {
  const uint8_t *ql = block, *qh = block + 128, *scales = block + 192;
  out.put16(0, 0, block + 208);
  for (int k = 0; k < 16; ++k) out.put8(kSubScales, k, scales[k]);
  for (int e = 0; e < 256; ++e) {
    const int n = e / 128, t = e % 128 / 32, l = e % 32;
    const int low = (ql[64 * n + 32 * (t % 2) + l] >> (t / 2 * 4)) & 15;
    codes[e] = static_cast<uint8_t>(low | ((qh[32 * n + l] >> (2 * t)) & 3) << 4);
  }
}

void iq4_xs(const uint8_t* block, const Lane& out, uint8_t* codes) {
  out.put16(0, 0, block);
  const int high = block[2] | block[3] << 8;
  for (int k = 0; k < 8; ++k) {
    const int scale = ((block[4 + k / 2] >> (4 * (k % 2))) & 15) | ((high >> (2 * k)) & 3) << 4;
    out.put8(kSubScales, k, scale - 32);
    nibbles_32(block + 8 + 16 * k, codes + 32 * k);
  }
}

void block_256(PanelKind kind, const uint8_t* block, const Lane& out, uint8_t* codes) {
  switch (kind) {
    case PanelKind::kQ2_K:
      return q2_k(block, out, codes);
    case PanelKind::kQ3_K:
      return q3_k(block, out, codes);
    case PanelKind::kQ4_K:
      return q4_k(block, out, codes);
    case PanelKind::kQ5_K:
      return q5_k(block, out, codes);
    case PanelKind::kQ6_K:
      return q6_k(block, out, codes);
    default:
      return iq4_xs(block, out, codes);
  }
}

// ---- MLX affine
// ------------------------------------------------------------------------------------

// `count` codes of `bits` from a little-endian bit stream. count * bits is a multiple of 32.
void unpack_bits(const uint8_t* stream, int bits, int count, uint8_t* codes) {
  uint32_t window = 0;
  int have = 0;
  for (int i = 0; i < count; ++i) {
    if (have < bits) {
      window |= uint32_t{*stream++} << have;
      have += 8;
    }
    codes[i] = static_cast<uint8_t>(window & ((1u << bits) - 1));
    window >>= bits;
    have -= bits;
  }
}

void mlx_group(const MatrixView& matrix, int64_t stored_row, int64_t step_index, const Lane& out,
               uint8_t* codes) {
  const int g = matrix.group_size;
  const size_t width = dtype_bytes(matrix.scale_dtype);
  const size_t entry = static_cast<size_t>(stored_row * (matrix.num_cols / g) + step_index) * width;
  std::memcpy(out.at(0, 0, static_cast<int>(width)), matrix.scales + entry, width);
  std::memcpy(out.at(0, 1, static_cast<int>(width)), matrix.biases + entry, width);
  unpack_bits(matrix.data + stored_row * matrix.row_bytes + step_index * g * matrix.bits / 8,
              matrix.bits, g, codes);
}

PanelKind kind_of(const MatrixView& matrix) {
  switch (matrix.format) {
    case WeightFormat::kF32:
      return PanelKind::kF32;
    case WeightFormat::kF16:
      return PanelKind::kF16;
    case WeightFormat::kBF16:
      return PanelKind::kBF16;
    case WeightFormat::kQ4_0:
      return PanelKind::kQ4_0;
    case WeightFormat::kQ4_1:
      return PanelKind::kQ4_1;
    case WeightFormat::kQ5_0:
      return PanelKind::kQ5_0;
    case WeightFormat::kQ5_1:
      return PanelKind::kQ5_1;
    case WeightFormat::kQ8_0:
      return PanelKind::kQ8_0;
    case WeightFormat::kQ2_K:
      return PanelKind::kQ2_K;
    case WeightFormat::kQ3_K:
      return PanelKind::kQ3_K;
    case WeightFormat::kQ4_K:
      return PanelKind::kQ4_K;
    case WeightFormat::kQ5_K:
      return PanelKind::kQ5_K;
    case WeightFormat::kQ6_K:
      return PanelKind::kQ6_K;
    case WeightFormat::kIQ4_NL:
      return PanelKind::kIQ4_NL;
    case WeightFormat::kIQ4_XS:
      return PanelKind::kIQ4_XS;
    case WeightFormat::kMXFP4:
      return PanelKind::kMXFP4;
    case WeightFormat::kMlxAffine:
      break;
  }
  switch (matrix.bits) {
    case 2:
      return PanelKind::kMlx2;
    case 3:
      return PanelKind::kMlx3;
    case 4:
      return PanelKind::kMlx4;
    case 5:
      return PanelKind::kMlx5;
    case 6:
      return PanelKind::kMlx6;
    case 8:
      return PanelKind::kMlx8;
    default:
      return PanelKind::kCount;
  }
}

}  // namespace

Result<PanelFormat> panel_format(const MatrixView& matrix) {
  const char* name = matrix.name.c_str();
  if (matrix.num_rows < 1 || matrix.num_cols < 1)
    return invalid_argument("%s is [%ld, %ld], expected a matrix", name, long{matrix.num_rows},
                            long{matrix.num_cols});
  PanelFormat format;
  format.kind = kind_of(matrix);
  if (format.kind == PanelKind::kCount)
    return unsupported("%s has MLX weights of %d bits; the cpu backend runs 2, 3, 4, 5, 6 and 8",
                       name, matrix.bits);
  const PanelLayout& layout = kPanelLayouts[static_cast<int>(format.kind)];
  format.step_k = layout.step_k;
  format.scale_bytes = layout.scale_bytes;
  if (matrix.format == WeightFormat::kMlxAffine) {
    if (matrix.group_size != 32 && matrix.group_size != 64 && matrix.group_size != 128)
      return unsupported("%s has groups of %d; the cpu backend runs 32, 64 and 128", name,
                         matrix.group_size);
    format.step_k = matrix.group_size;
    format.scale_dtype = matrix.scale_dtype;
    format.scale_bytes = static_cast<int>(2 * kPanelRows * dtype_bytes(matrix.scale_dtype));
  }
  const int block = matrix.format == WeightFormat::kMlxAffine
                        ? matrix.group_size
                        : block_shape(matrix.format).num_elements;
  if (matrix.num_cols % block != 0)
    return invalid_argument("%s has %ld columns, no multiple of its blocks of %d", name,
                            long{matrix.num_cols}, block);
  if (layout.code_bits == 0) {
    format.step_bytes = 64;
  } else {
    format.step_bytes =
        format.scale_bytes +
        format.step_k / kGroup * (kMainBytes[layout.code_bits] + kExtraBytes[layout.code_bits]);
  }
  const int64_t num_steps = (matrix.num_cols + format.step_k - 1) / format.step_k;
  format.panel_bytes = num_steps * format.step_bytes;
  return format;
}

void pack_lane(const MatrixView& matrix, const PanelFormat& format, int64_t row, int64_t step_index,
               int lane, uint8_t* step) {
  const int64_t first = step_index * format.step_k;
  const int64_t count = std::min<int64_t>(format.step_k, matrix.num_cols - first);
  const Lane out{format, step, lane};
  if (kPanelLayouts[static_cast<int>(format.kind)].code_bits == 0) {
    const int width = format.kind == PanelKind::kF32 ? 4 : 2;
    const uint8_t* from = matrix.row_data(row) + first * width;
    for (int i = 0; i < count; ++i)
      std::memcpy(out.at(0, i, width), from + i * width, static_cast<size_t>(width));
    return;
  }
  uint8_t codes[kMaxStep];
  if (matrix.format == WeightFormat::kMlxAffine) {
    mlx_group(matrix, matrix.stored_row(row), step_index, out, codes);
  } else {
    const BlockShape shape = block_shape(matrix.format);
    const uint8_t* block = matrix.row_data(row) + first / shape.num_elements * shape.num_bytes;
    if (shape.num_elements == 256) {
      block_256(format.kind, block, out, codes);
    } else {
      for (int b = 0; b < count / kGroup; ++b, block += shape.num_bytes)
        block_32(format.kind, block, b, out, codes + b * kGroup);
    }
  }
  put_codes(out, codes, static_cast<int>(count / kGroup));
}

}  // namespace invar::cpu
