// The block formats of specs/weights.md 3.3 and 2.1, taken apart: integer codes go to operand
// order, scales to the scale section. Nothing is computed but bit moves (and the + 128 of signed
// bytes).
#include "backend/cpu/pack_lane.h"

#include <cstring>

namespace invar::cpu {
namespace {

uint32_t load32(const uint8_t* p) {
  uint32_t v;
  std::memcpy(&v, p, 4);
  return v;
}
void store32(uint8_t* p, uint32_t v) { std::memcpy(p, &v, 4); }

// One lane of a step; scale entries are addressed by vector of 16 lanes.
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
template <int kBits>
void put_codes(const Lane& out, const uint8_t* codes, int num_groups) {
  const PanelFormat& format = out.format;
  constexpr int kMain = kMainBytes[kBits], kExtra = kExtraBytes[kBits];
  uint8_t* main = out.step + format.scale_bytes + out.lane * 4;
  uint8_t* extra = main + format.step_k / kGroup * kMain;
  for (int g = 0; g < num_groups; ++g, main += kMain, extra += kExtra, codes += kGroup) {
    uint32_t operand[8];
    for (int t = 0; t < 8; ++t) operand[t] = load32(codes + t * 4);
    if constexpr (kBits == 8) {
      for (int t = 0; t < 8; ++t) store32(main + t * 64, operand[t]);
    } else if constexpr (kBits >= 4) {
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
    if constexpr (kBits == 3 || kBits == 5) {
      uint32_t plane = 0;
      for (int t = 0; t < 8; ++t)
        plane |= ((operand[t] >> (kBits - 1)) & 0x01010101) << ((kBits - 1 - t) & 7);
      store32(extra, plane);
    } else if constexpr (kBits == 6) {
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
  // Four bits at a time to the lowest bits of four bytes.
  for (int t = 0; t < 8; ++t) {
    const uint32_t spread = (((high >> (4 * t)) & 15) * 0x00204081) & 0x01010101;
    store32(codes + 4 * t, load32(codes + 4 * t) | spread << 4);
  }
}

// Block `b` of a step.
inline __attribute__((always_inline)) void block_32(PanelKind kind, const uint8_t* block, int b,
                                                    const Lane& out, uint8_t* codes) {
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

// Sub-block k of 32: low (even k) or high nibbles of bytes 32 (k / 2) and on.
void nibbles_k(const uint8_t* qs, uint8_t* codes) {
  for (int c = 0; c < 4; ++c, qs += 32, codes += 64)
    for (int l = 0; l < 32; ++l) {
      codes[l] = qs[l] & 15;
      codes[l + 32] = qs[l] >> 4;
    }
}

// Element 128 n + 32 j + l: bits 2 j of byte 32 n + l.
void two_bits_k(const uint8_t* qs, uint8_t* codes) {
  for (int n = 0; n < 2; ++n, qs += 32)
    for (int j = 0; j < 4; ++j, codes += 32)
      for (int l = 0; l < 32; ++l) codes[l] = (qs[l] >> (2 * j)) & 3;
}

// Element 32 k + l: bit k of byte l, to bit `to`.
void high_bits_k(const uint8_t* qh, int to, uint8_t* codes) {
  for (int k = 0; k < 8; ++k, codes += 32)
    for (int l = 0; l < 32; ++l) codes[l] |= static_cast<uint8_t>(((qh[l] >> k) & 1) << to);
}

void q2_k(const uint8_t* block, const Lane& out, uint8_t* codes) {
  out.put16(0, 0, block + 80);
  out.put16(0, 1, block + 82);
  for (int k = 0; k < 16; ++k) out.put8(kSubScales, k, block[k]);
  two_bits_k(block + 16, codes);
}

void q3_k(const uint8_t* block, const Lane& out, uint8_t* codes) {
  const uint8_t *high_mask = block, *qs = block + 32, *scales = block + 96;
  out.put16(0, 0, block + 108);
  for (int k = 0; k < 16; ++k) {
    const int low = k < 8 ? scales[k] & 15 : scales[k - 8] >> 4;
    const int high = (scales[8 + k % 4] >> (2 * (k / 4))) & 3;
    out.put8(kSubScales, k, (low | high << 4) - 32);
  }
  two_bits_k(qs, codes);
  high_bits_k(high_mask, 2, codes);
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
  high_bits_k(block + 16, 4, codes);
}

void q6_k(const uint8_t* block, const Lane& out, uint8_t* codes) {
  const uint8_t *ql = block, *qh = block + 128, *scales = block + 192;
  out.put16(0, 0, block + 208);
  for (int k = 0; k < 16; ++k) out.put8(kSubScales, k, scales[k]);
  for (int n = 0; n < 2; ++n, ql += 64, qh += 32)
    for (int t = 0; t < 4; ++t, codes += 32) {
      const uint8_t* low = ql + 32 * (t % 2);
      for (int l = 0; l < 32; ++l)
        codes[l] =
            static_cast<uint8_t>(((low[l] >> (t / 2 * 4)) & 15) | ((qh[l] >> (2 * t)) & 3) << 4);
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

inline __attribute__((always_inline)) void block_256(PanelKind kind, const uint8_t* block,
                                                     const Lane& out, uint8_t* codes) {
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

// `count` codes from a little-endian bit stream; count * kBits is a multiple of 32.
template <int kBits>
void unpack_bits(const uint8_t* stream, int count, uint8_t* codes) {
  if constexpr (kBits == 8) {
    std::memcpy(codes, stream, static_cast<size_t>(count));
  } else if constexpr (kBits == 4) {
    for (int i = 0; i < count / 2; ++i) {
      codes[2 * i] = stream[i] & 15;
      codes[2 * i + 1] = stream[i] >> 4;
    }
  } else {
    // kBits bytes hold eight codes.
    for (int i = 0; i < count; i += 8, stream += kBits) {
      uint64_t window = 0;
      std::memcpy(&window, stream, kBits);
      for (int j = 0; j < 8; ++j)
        codes[i + j] = static_cast<uint8_t>((window >> (j * kBits)) & ((1u << kBits) - 1));
    }
  }
}

// ---- A whole row
// -----------------------------------------------------------------------------------

template <PanelKind kKind>
void pack_blocks(const MatrixView& matrix, const Lane& first, int64_t row) {
  constexpr PanelLayout kLayout = kPanelLayouts[static_cast<int>(kKind)];
  const int block_bytes = block_shape(matrix.format).num_bytes;
  const uint8_t* block = matrix.row_data(row);
  uint8_t codes[kLayout.step_k];
  Lane out = first;
  for (int64_t left = matrix.num_cols; left > 0;
       left -= kLayout.step_k, out.step += first.format.step_bytes) {
    if constexpr (kLayout.step_k == 256) {
      block_256(kKind, block, out, codes);
      block += block_bytes;
      put_codes<kLayout.code_bits>(out, codes, 256 / kGroup);
    } else {
      const auto num_groups = static_cast<int>(std::min<int64_t>(left, kLayout.step_k) / kGroup);
      for (int b = 0; b < num_groups; ++b, block += block_bytes)
        block_32(kKind, block, b, out, codes + b * kGroup);
      put_codes<kLayout.code_bits>(out, codes, num_groups);
    }
  }
}

template <int kBits>
void pack_mlx(const MatrixView& matrix, const Lane& first, int64_t row) {
  const int64_t stored = matrix.stored_row(row);
  const int group_size = matrix.group_size;
  const size_t width = dtype_bytes(matrix.scale_dtype);
  const int64_t num_steps = matrix.num_cols / group_size;
  const uint8_t* stream = matrix.row_data(row);
  const size_t entry = static_cast<size_t>(stored * num_steps) * width;
  const uint8_t *scales = matrix.scales + entry, *biases = matrix.biases + entry;
  uint8_t codes[128];
  Lane out = first;
  for (int64_t s = 0; s < num_steps; ++s, out.step += first.format.step_bytes) {
    std::memcpy(out.at(0, 0, static_cast<int>(width)), scales, width);
    std::memcpy(out.at(0, 1, static_cast<int>(width)), biases, width);
    unpack_bits<kBits>(stream, group_size, codes);
    put_codes<kBits>(out, codes, group_size / kGroup);
    scales += width;
    biases += width;
    stream += group_size * kBits / 8;
  }
}

template <typename Value>
void pack_floats(const MatrixView& matrix, const Lane& out, int64_t row) {
  const uint8_t* from = matrix.row_data(row);
  uint8_t* to = out.at(0, 0, sizeof(Value));
  for (int64_t k = 0; k < matrix.num_cols; ++k) {
    std::memcpy(to, from, sizeof(Value));
    from += sizeof(Value);
    to += kPanelRows * sizeof(Value);
  }
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

void pack_lane(const MatrixView& matrix, const PanelFormat& format, int64_t row, int lane,
               uint8_t* panel) {
  const Lane out{format, panel, lane};
  switch (format.kind) {
    case PanelKind::kF32:
      return pack_floats<uint32_t>(matrix, out, row);
    case PanelKind::kF16:
    case PanelKind::kBF16:
      return pack_floats<uint16_t>(matrix, out, row);
    case PanelKind::kQ4_0:
      return pack_blocks<PanelKind::kQ4_0>(matrix, out, row);
    case PanelKind::kQ4_1:
      return pack_blocks<PanelKind::kQ4_1>(matrix, out, row);
    case PanelKind::kQ5_0:
      return pack_blocks<PanelKind::kQ5_0>(matrix, out, row);
    case PanelKind::kQ5_1:
      return pack_blocks<PanelKind::kQ5_1>(matrix, out, row);
    case PanelKind::kQ8_0:
      return pack_blocks<PanelKind::kQ8_0>(matrix, out, row);
    case PanelKind::kQ2_K:
      return pack_blocks<PanelKind::kQ2_K>(matrix, out, row);
    case PanelKind::kQ3_K:
      return pack_blocks<PanelKind::kQ3_K>(matrix, out, row);
    case PanelKind::kQ4_K:
      return pack_blocks<PanelKind::kQ4_K>(matrix, out, row);
    case PanelKind::kQ5_K:
      return pack_blocks<PanelKind::kQ5_K>(matrix, out, row);
    case PanelKind::kQ6_K:
      return pack_blocks<PanelKind::kQ6_K>(matrix, out, row);
    case PanelKind::kIQ4_NL:
      return pack_blocks<PanelKind::kIQ4_NL>(matrix, out, row);
    case PanelKind::kIQ4_XS:
      return pack_blocks<PanelKind::kIQ4_XS>(matrix, out, row);
    case PanelKind::kMXFP4:
      return pack_blocks<PanelKind::kMXFP4>(matrix, out, row);
    case PanelKind::kMlx2:
      return pack_mlx<2>(matrix, out, row);
    case PanelKind::kMlx3:
      return pack_mlx<3>(matrix, out, row);
    case PanelKind::kMlx4:
      return pack_mlx<4>(matrix, out, row);
    case PanelKind::kMlx5:
      return pack_mlx<5>(matrix, out, row);
    case PanelKind::kMlx6:
      return pack_mlx<6>(matrix, out, row);
    case PanelKind::kMlx8:
      return pack_mlx<8>(matrix, out, row);
    case PanelKind::kCount:
      break;
  }
  INVAR_CHECK(false, "no panels of kind %d", static_cast<int>(format.kind));
}

}  // namespace invar::cpu
