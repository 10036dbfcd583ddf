#include "backend/cuda/pack.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace invar::cuda {
namespace {

constexpr float kStored = 1.f / kWeightUndo;

uint16_t read_u16(const uint8_t* p) {
  uint16_t v;
  std::memcpy(&v, p, 2);
  return v;
}

// One row's share of a block: the codes, and what the kind keeps beside them.
struct RowBlock {
  uint8_t code[kBlockCols] = {};
  uint16_t weight[kBlockCols] = {};  // kBf16: W, not yet times 2^-8
  uint16_t half[4] = {};             // fp16 or bf16 bits; see the readers
  int8_t scale[4] = {};              // kQ6K: per 16
  uint8_t scale_min[4] = {};         // kQ4K: sc, m of the first 32 columns, then of the second
  float max_scale = 0;
};

// Six-bit scale and min of sub-block k of a Q4_K block (specs/weights.md 3.3).
void q4k_scale_min(const uint8_t* s, int k, uint8_t* scale, uint8_t* min) {
  if (k < 4) {
    *scale = s[k] & 63;
    *min = s[k + 4] & 63;
  } else {
    *scale = static_cast<uint8_t>((s[k + 4] & 15) | (s[k - 4] >> 6) << 4);
    *min = static_cast<uint8_t>((s[k + 4] >> 4) | (s[k] >> 6) << 4);
  }
}

float scale_at(const MatrixView& m, const uint8_t* values, int64_t row, int64_t group) {
  const int64_t index = m.stored_row(row) * (m.num_cols / m.group_size) + group;
  switch (m.scale_dtype) {
    case DType::kF32: {
      float v;
      std::memcpy(&v, values + 4 * index, 4);
      return v;
    }
    case DType::kF16:
      return f16_to_f32(read_u16(values + 2 * index));
    case DType::kBF16:
      return bf16_to_f32(read_u16(values + 2 * index));
  }
  return 0;
}

// Code of column c of an MLX row: little-endian bit stream.
uint32_t mlx_code(const uint8_t* row, int bits, int64_t c) {
  const int64_t bit = c * bits;
  uint32_t v = row[bit >> 3];
  if ((bit & 7) + bits > 8) v |= static_cast<uint32_t>(row[(bit >> 3) + 1]) << 8;
  return (v >> (bit & 7)) & ((1u << bits) - 1);
}

void read_affine4(const MatrixView& m, int64_t row, int64_t block, RowBlock* out) {
  const uint8_t* codes = m.row_data(row) + block * 32;
  for (int i = 0; i < 32; ++i) {
    out->code[2 * i] = codes[i] & 15;
    out->code[2 * i + 1] = codes[i] >> 4;
  }
  const float scale = scale_at(m, m.scales, row, block), bias = scale_at(m, m.biases, row, block);
  out->half[0] = bf16_rn(scale);
  out->half[1] = bf16_rn(bias * kStored);
  out->max_scale = std::fabs(scale);
}

void read_half4(const MatrixView& m, int64_t row, int64_t block, RowBlock* out) {
  const bool with_min = m.format == WeightFormat::kQ4_1;
  const int bytes = with_min ? 20 : 18;
  for (int group = 0; group < 2; ++group) {
    const uint8_t* b = m.row_data(row) + (block * 2 + group) * bytes;
    const float d = f16_to_f32(read_u16(b));
    out->half[2 * group] = read_u16(b);
    // Q4_0 is d * (q - 8): bias -8 d, exact in fp16 unless it overflows.
    out->half[2 * group + 1] = with_min ? read_u16(b + 2) : f32_to_f16(-8.f * d);
    if (!with_min && std::fabs(d) >= 8188.f) out->max_scale = kMaxScale;
    out->max_scale = std::max(out->max_scale, std::fabs(d));
    const uint8_t* q = b + (with_min ? 4 : 2);
    for (int i = 0; i < 16; ++i) {
      out->code[32 * group + i] = q[i] & 15;
      out->code[32 * group + 16 + i] = q[i] >> 4;
    }
  }
}

void read_q8(const MatrixView& m, int64_t row, int64_t block, RowBlock* out) {
  for (int group = 0; group < 2; ++group) {
    const uint8_t* b = m.row_data(row) + (block * 2 + group) * 34;
    out->half[group] = read_u16(b);
    out->max_scale = std::max(out->max_scale, std::fabs(f16_to_f32(read_u16(b))));
    for (int i = 0; i < 32; ++i)  // unsigned with an offset of 128, which the bias takes back
      out->code[32 * group + i] = static_cast<uint8_t>(static_cast<int8_t>(b[2 + i]) + 128);
  }
}

void read_q4k(const MatrixView& m, int64_t row, int64_t block, RowBlock* out) {
  const uint8_t* b = m.row_data(row) + (block / 4) * 144;
  const int c = static_cast<int>(block % 4);  // 64 columns: sub-blocks 2c and 2c + 1
  out->half[0] = read_u16(b);
  out->half[1] = read_u16(b + 2);
  for (int h = 0; h < 2; ++h) {
    q4k_scale_min(b + 4, 2 * c + h, &out->scale_min[2 * h], &out->scale_min[2 * h + 1]);
    for (int l = 0; l < 32; ++l) {
      const uint8_t q = b[16 + 32 * c + l];
      out->code[32 * h + l] = h == 0 ? q & 15 : q >> 4;
    }
    out->max_scale = std::max(out->max_scale, std::fabs(f16_to_f32(out->half[0])) *
                                                  static_cast<float>(out->scale_min[2 * h]));
  }
}

void read_q6k(const MatrixView& m, int64_t row, int64_t block, RowBlock* out) {
  const uint8_t* b = m.row_data(row) + (block / 4) * 210;
  out->half[0] = read_u16(b + 208);
  const float d = std::fabs(f16_to_f32(out->half[0]));
  for (int i = 0; i < kBlockCols; ++i) {
    const int e = static_cast<int>(block % 4) * kBlockCols + i;
    const int n = e / 128, t = e / 32 % 4, l = e % 32;
    const uint8_t ql = b[64 * n + 32 * (t % 2) + l];
    const int low = t < 2 ? ql & 15 : ql >> 4, high = (b[128 + 32 * n + l] >> (2 * t)) & 3;
    out->code[i] = static_cast<uint8_t>(low | high << 4);  // the bias takes back the 32
    const auto scale = static_cast<int8_t>(b[192 + 8 * n + 2 * t + l / 16]);
    out->scale[i / 16] = scale;
    out->max_scale = std::max(out->max_scale, d * std::fabs(static_cast<float>(scale)));
  }
}

// Row g (0..15) of a block whose fragment slots are described in packed.h. `slot` is the register
// of the fragment: 0 and 2 for rows 0..7, 1 and 3 for rows 8..15; odd columns go to the upper half.
struct Place {
  int lane, step, slot, odd;
};
Place place_of(int g, int column) {
  const int step = column / 16, c = column % 16;
  return {4 * (g & 7) + (c & 7) / 2, step, (g >> 3) + 2 * (c >> 3), c & 1};
}

void put_u16(uint8_t* p, uint16_t v) { std::memcpy(p, &v, 2); }

void place_row(PackedKind kind, int g, const RowBlock& row, uint8_t* block) {
  const int upper = g >> 3, low = g & 7;
  for (int c = 0; c < kBlockCols; ++c) {
    const Place p = place_of(g, c);
    const uint8_t code = row.code[c];
    // Byte forms keep rows g and g + 8 in separate words, bytes in the order
    // even column, even + 8, odd, odd + 8.
    const int byte = (p.slot >> 1) + 2 * p.odd;
    switch (kind) {
      case PackedKind::kBf16:
        put_u16(block + (p.step * 32 + p.lane) * 16 + p.slot * 4 + p.odd * 2,
                bf16_rn(bf16_to_f32(row.weight[c]) * kStored));
        break;
      case PackedKind::kQ8:
        block[p.lane * 32 + p.step * 8 + upper * 4 + byte] = code;
        break;
      default: {  // nibble i of each half word is register i
        const int bit = 4 * p.slot + 16 * p.odd;
        block[p.lane * 16 + p.step * 4 + bit / 8] |= static_cast<uint8_t>((code & 15) << (bit % 8));
        break;
      }
    }
    if (kind == PackedKind::kQ6K) {
      // The upper two bits of steps 2i and 2i + 1 share a word: byte as above, bits 2 f.. of it
      // with f = (step & 1) + 2 * upper.
      block[512 + p.lane * 8 + (p.step >> 1) * 4 + byte] |=
          static_cast<uint8_t>((code >> 4) << (2 * ((p.step & 1) + 2 * upper)));
    }
  }
  switch (kind) {
    case PackedKind::kBf16:
      break;
    case PackedKind::kAffine4: {
      // Codes of rows 8..15 stand four bits higher, so their scale is 16 times smaller.
      const float stored =
          std::ldexp(bf16_to_f32(row.half[0]), (upper ? 129 : 133) - kWeightExponent);
      put_u16(block + 512 + low * 8 + upper * 4, bf16_rn(stored));
      put_u16(block + 512 + low * 8 + upper * 4 + 2, row.half[1]);
      break;
    }
    case PackedKind::kHalf4:
      for (int group = 0; group < 2; ++group) {
        put_u16(block + 512 + low * 16 + group * 8 + upper * 4, row.half[2 * group]);
        put_u16(block + 512 + low * 16 + group * 8 + upper * 4 + 2, row.half[2 * group + 1]);
      }
      break;
    case PackedKind::kQ4K:
      put_u16(block + 512 + low * 16 + upper * 4, row.half[0]);
      put_u16(block + 512 + low * 16 + upper * 4 + 2, row.half[1]);
      std::memcpy(block + 512 + low * 16 + 8 + upper * 4, row.scale_min, 4);
      break;
    case PackedKind::kQ8:
      for (int group = 0; group < 2; ++group)
        put_u16(block + 1024 + low * 8 + group * 4 + upper * 2, row.half[group]);
      break;
    case PackedKind::kQ6K:
      std::memcpy(block + 768 + low * 8 + upper * 4, row.scale, 4);
      put_u16(block + 832 + low * 4 + upper * 2, row.half[0]);
      break;
  }
}

void read_block(PackedKind kind, const MatrixView& m, int64_t row, int64_t block, RowBlock* out) {
  switch (kind) {
    case PackedKind::kBf16:
      break;  // read a row at a time by the caller
    case PackedKind::kAffine4:
      return read_affine4(m, row, block, out);
    case PackedKind::kHalf4:
      return read_half4(m, row, block, out);
    case PackedKind::kQ4K:
      return read_q4k(m, row, block, out);
    case PackedKind::kQ8:
      return read_q8(m, row, block, out);
    case PackedKind::kQ6K:
      return read_q6k(m, row, block, out);
  }
}

struct SourceRow {
  const MatrixView* part = nullptr;  // null: padding
  int64_t row = 0;
};

// Which checkpoint row is packed row `index`.
SourceRow source_row(std::span<const MatrixView> parts, bool gated, int64_t index) {
  if (gated) {
    const int64_t row = index / 16 * 8 + index % 8;
    if (row >= parts[0].num_rows) return {};
    return {&parts[index % 16 / 8], row};
  }
  for (const MatrixView& part : parts) {
    if (index < part.num_rows) return {&part, index};
    index -= part.num_rows;
  }
  return {};
}

// A strip: 16 packed rows. False: a scale is too large for this kind.
bool pack_strip(const PackedMatrix& m, std::span<const MatrixView> parts, int64_t strip,
                std::vector<uint16_t>& weights, uint8_t* to) {
  const size_t block_size = block_bytes(m.kind);
  std::memset(to, 0, static_cast<size_t>(m.num_blocks) * block_size);
  for (int g = 0; g < kStripRows; ++g) {
    const SourceRow source = source_row(parts, m.gated, strip * kStripRows + g);
    if (source.part == nullptr) continue;  // zero codes, scales and biases: W = 0
    if (m.kind == PackedKind::kBf16) weight_row_bf16(*source.part, source.row, weights.data());
    for (int64_t b = 0; b < m.num_blocks; ++b) {
      RowBlock row;
      if (m.kind == PackedKind::kBf16) {
        std::copy_n(weights.begin() + b * kBlockCols, kBlockCols, row.weight);
      } else {
        read_block(m.kind, *source.part, source.row, b, &row);
      }
      if (!(row.max_scale < kMaxScale)) return false;
      place_row(m.kind, g, row, to + static_cast<size_t>(b) * block_size);
    }
  }
  return true;
}

bool pack_as(PackedKind kind, std::span<const MatrixView> parts, ThreadPool* pool,
             HostPacked* out) {
  PackedMatrix& m = out->matrix;
  m.kind = kind;
  out->num_bytes = m.num_bytes();
  out->bytes = std::make_unique_for_overwrite<uint8_t[]>(out->num_bytes);
  const size_t strip_bytes = static_cast<size_t>(m.num_blocks) * block_bytes(kind);
  std::atomic<bool> fits = true;
  const auto pack_strips = [&](int64_t begin, int64_t end, int) {
    std::vector<uint16_t> weights(static_cast<size_t>(m.num_cols));
    for (int64_t strip = begin; strip < end && fits; ++strip)
      if (!pack_strip(m, parts, strip, weights,
                      out->bytes.get() + static_cast<size_t>(strip) * strip_bytes))
        fits = false;
  };
  if (pool != nullptr)
    pool->run(m.num_strips, pack_strips);
  else
    pack_strips(0, m.num_strips, 0);
  return fits;
}

}  // namespace

uint16_t bf16_rn(float value) {
  uint32_t bits = std::bit_cast<uint32_t>(value);
  if (std::isnan(value)) return static_cast<uint16_t>((bits >> 16) | 64);
  bits += 0x7fff + ((bits >> 16) & 1);
  return static_cast<uint16_t>(bits >> 16);
}

// One rounding: the float is cut toward zero and its last bit made sticky first.
uint16_t bf16_rn(double value) {
  float cut = static_cast<float>(value);
  if (std::isfinite(cut) && static_cast<double>(cut) != value) {
    if (std::fabs(static_cast<double>(cut)) > std::fabs(value)) cut = std::nextafter(cut, 0.f);
    cut = std::bit_cast<float>(std::bit_cast<uint32_t>(cut) | 1u);
  }
  return bf16_rn(cut);
}

PackedKind native_kind(const MatrixView& m) {
  switch (m.format) {
    case WeightFormat::kQ4_0:
    case WeightFormat::kQ4_1:
      return PackedKind::kHalf4;
    case WeightFormat::kQ4_K:
      return PackedKind::kQ4K;
    case WeightFormat::kQ6_K:
      return PackedKind::kQ6K;
    case WeightFormat::kQ8_0:
      return PackedKind::kQ8;
    case WeightFormat::kMlxAffine:
      return m.bits == 4 && m.group_size == 64 && m.scale_dtype == DType::kBF16
                 ? PackedKind::kAffine4
                 : PackedKind::kBf16;
    default:
      return PackedKind::kBf16;
  }
}

void weight_row_bf16(const MatrixView& m, int64_t row, uint16_t* out) {
  if (m.format == WeightFormat::kMlxAffine) {
    const uint8_t* codes = m.row_data(row);
    for (int64_t c = 0; c < m.num_cols; ++c) {
      const double scale = scale_at(m, m.scales, row, c / m.group_size);
      const double bias = scale_at(m, m.biases, row, c / m.group_size);
      out[c] = bf16_rn(mlx_code(codes, m.bits, c) * scale + bias);
    }
    return;
  }
  std::vector<float> values(static_cast<size_t>(m.num_cols));
  dequantize_row(m, row, values.data());
  for (int64_t c = 0; c < m.num_cols; ++c) out[c] = bf16_rn(values[static_cast<size_t>(c)]);
}

Result<HostPacked> pack_matrix(std::span<const MatrixView> parts, const PackOptions& options) {
  INVAR_CHECK(!parts.empty() && (!options.gated || parts.size() == 2), "%zu parts", parts.size());
  HostPacked packed;
  PackedMatrix& m = packed.matrix;
  int64_t rows = 0;
  PackedKind kind = native_kind(parts[0]);
  for (const MatrixView& part : parts) {
    if (part.num_cols % kBlockCols != 0)
      return unsupported("%s has %ld columns; the cuda backend takes multiples of %d",
                         part.name.c_str(), long{part.num_cols}, kBlockCols);
    INVAR_CHECK(part.num_cols == parts[0].num_cols, "parts have different widths");
    INVAR_CHECK(!options.gated || part.num_rows == parts[0].num_rows, "gate and up differ");
    if (native_kind(part) != kind) kind = PackedKind::kBf16;
    rows += part.num_rows;
  }
  m.gated = options.gated;
  m.num_rows = static_cast<int>(options.gated ? rows / 2 : rows);
  m.num_cols = static_cast<int>(parts[0].num_cols);
  m.num_blocks = m.num_cols / kBlockCols;
  // A gated strip has eight rows of each part.
  m.num_strips = options.gated ? (m.num_rows + 7) / 8 : (m.num_rows + 15) / 16;
  m.num_slices = slice_count(m.num_strips, m.num_blocks, options.head);
  if (options.force_bf16 || !pack_as(kind, parts, options.pool, &packed))
    pack_as(PackedKind::kBf16, parts, options.pool, &packed);
  m.data = packed.bytes.get();
  return packed;
}

void unpack_row_bf16(const PackedMatrix& m, int64_t strip_row, uint16_t* out) {
  const int g = static_cast<int>(strip_row % kStripRows), upper = g >> 3, low = g & 7;
  for (int c = 0; c < m.num_cols; ++c) {
    const uint8_t* block =
        m.data + (static_cast<size_t>(strip_row / kStripRows) * m.num_blocks + c / kBlockCols) *
                     block_bytes(m.kind);
    const Place p = place_of(g, c % kBlockCols);
    const int byte = (p.slot >> 1) + 2 * p.odd, bit = 4 * p.slot + 16 * p.odd;
    const int group = c % kBlockCols / 32;
    const int nibble = block[p.lane * 16 + p.step * 4 + bit / 8] >> (bit % 8) & 15;
    const uint8_t* tail = block + 512;
    float weight = 0;
    switch (m.kind) {
      case PackedKind::kBf16:
        weight =
            bf16_to_f32(read_u16(block + (p.step * 32 + p.lane) * 16 + p.slot * 4 + p.odd * 2));
        break;
      case PackedKind::kAffine4: {
        const double scale =
            std::ldexp(static_cast<double>(bf16_to_f32(read_u16(tail + low * 8 + upper * 4))),
                       upper ? -129 : -133);
        const double bias = bf16_to_f32(read_u16(tail + low * 8 + upper * 4 + 2));
        weight = bf16_to_f32(bf16_rn(nibble * scale + bias));
        break;
      }
      case PackedKind::kHalf4: {
        const uint8_t* s = tail + low * 16 + group * 8 + upper * 4;
        weight = std::fma(static_cast<float>(nibble), f16_to_f32(read_u16(s)) * kStored,
                          f16_to_f32(read_u16(s + 2)) * kStored);
        break;
      }
      case PackedKind::kQ4K: {
        const uint8_t* s = tail + low * 16;
        const float d = f16_to_f32(read_u16(s + upper * 4)) * kStored;
        const float dmin = f16_to_f32(read_u16(s + upper * 4 + 2)) * kStored;
        const uint8_t* pair = s + 8 + upper * 4 + 2 * group;
        weight = std::fma(static_cast<float>(nibble), d * pair[0], -(dmin * pair[1]));
        break;
      }
      case PackedKind::kQ8: {
        const float d =
            f16_to_f32(read_u16(block + 1024 + low * 8 + group * 4 + upper * 2)) * kStored;
        const int code = block[p.lane * 32 + p.step * 8 + upper * 4 + byte];
        weight = std::fma(static_cast<float>(code), d, -128.f * d);
        break;
      }
      case PackedKind::kQ6K: {
        const int high =
            block[512 + p.lane * 8 + (p.step >> 1) * 4 + byte] >> (2 * ((p.step & 1) + 2 * upper)) &
            3;
        const auto scale = static_cast<int8_t>(block[768 + low * 8 + upper * 4 + p.step]);
        const float d = f16_to_f32(read_u16(block + 832 + low * 4 + upper * 2)) * kStored * scale;
        weight = std::fma(static_cast<float>(nibble | high << 4), d, -32.f * d);
        break;
      }
    }
    out[c] = bf16_rn(weight * kWeightUndo);
  }
}

}  // namespace invar::cuda
