// What holds for every weight format: block sizes, names, where a row is stored, half precision,
// and rows of MLX affine matrices. The GGUF block formulas are in quant_blocks.cc.
#include "tensor/quant.h"

#include <bit>
#include <cstring>

#include "base/check.h"

namespace invar {

BlockShape block_shape(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return {1, 4};
    case WeightFormat::kF16:
      return {1, 2};
    case WeightFormat::kBF16:
      return {1, 2};
    case WeightFormat::kQ4_0:
      return {32, 18};
    case WeightFormat::kQ4_1:
      return {32, 20};
    case WeightFormat::kQ5_0:
      return {32, 22};
    case WeightFormat::kQ5_1:
      return {32, 24};
    case WeightFormat::kQ8_0:
      return {32, 34};
    case WeightFormat::kQ2_K:
      return {256, 84};
    case WeightFormat::kQ3_K:
      return {256, 110};
    case WeightFormat::kQ4_K:
      return {256, 144};
    case WeightFormat::kQ5_K:
      return {256, 176};
    case WeightFormat::kQ6_K:
      return {256, 210};
    case WeightFormat::kIQ4_NL:
      return {32, 18};
    case WeightFormat::kIQ4_XS:
      return {256, 136};
    case WeightFormat::kMXFP4:
      return {32, 17};
    case WeightFormat::kMlxAffine:
      break;
  }
  INVAR_CHECK(false, "weight format %d has no block", static_cast<int>(format));
}

const char* format_name(WeightFormat format) {
  switch (format) {
    case WeightFormat::kF32:
      return "F32";
    case WeightFormat::kF16:
      return "F16";
    case WeightFormat::kBF16:
      return "BF16";
    case WeightFormat::kQ4_0:
      return "Q4_0";
    case WeightFormat::kQ4_1:
      return "Q4_1";
    case WeightFormat::kQ5_0:
      return "Q5_0";
    case WeightFormat::kQ5_1:
      return "Q5_1";
    case WeightFormat::kQ8_0:
      return "Q8_0";
    case WeightFormat::kQ2_K:
      return "Q2_K";
    case WeightFormat::kQ3_K:
      return "Q3_K";
    case WeightFormat::kQ4_K:
      return "Q4_K";
    case WeightFormat::kQ5_K:
      return "Q5_K";
    case WeightFormat::kQ6_K:
      return "Q6_K";
    case WeightFormat::kIQ4_NL:
      return "IQ4_NL";
    case WeightFormat::kIQ4_XS:
      return "IQ4_XS";
    case WeightFormat::kMXFP4:
      return "MXFP4";
    case WeightFormat::kMlxAffine:
      return "MLX affine";
  }
  INVAR_CHECK(false, "weight format %d", static_cast<int>(format));
}

// ---- Half precision
// ------------------------------------------------------------------------------

float f16_to_f32(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000) << 16;
  const uint32_t exponent = (bits >> 10) & 31;
  const uint32_t mantissa = bits & 0x3ff;
  if (exponent == 0) {
    // Zero and subnormals: mantissa * 2^-24, exact in fp32.
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -magnitude : magnitude;
  }
  const uint32_t wide_exponent = exponent == 31 ? 255 : exponent + 112;
  return std::bit_cast<float>(sign | wide_exponent << 23 | mantissa << 13);
}

uint16_t f32_to_f16(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const auto sign = static_cast<uint16_t>((bits >> 16) & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {  // NaN stays one, with the top of its payload
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x1ff));
  }
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds to 65536 up
  if (magnitude >= 0x38800000) {  // normal: drop 13 bits, half to even
    const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
    return static_cast<uint16_t>(sign | ((rounded - (112u << 23)) >> 13));
  }
  if (magnitude < 0x33000000) return sign;  // below half of the smallest subnormal
  const uint32_t exponent = magnitude >> 23;
  const uint32_t mantissa = (magnitude & 0x7fffff) | 0x800000;
  const uint32_t shift = 126 - exponent;  // 14..24: to units of 2^-24
  const uint32_t kept = mantissa >> shift;
  const uint32_t rest = mantissa & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  const uint32_t up = rest > half || (rest == half && (kept & 1) != 0) ? 1 : 0;
  return static_cast<uint16_t>(sign | (kept + up));
}

// ---- Rows
// ----------------------------------------------------------------------------------------

int64_t MatrixView::stored_row(int64_t r) const {
  const int64_t d = interleaved_head_dim;
  if (d == 0) return r;
  const int64_t in_head = r % d;
  const int64_t half = in_head / (d / 2);
  const int64_t pair = in_head % (d / 2);
  return r - in_head + 2 * pair + half;
}

size_t MatrixView::num_bytes() const {
  auto total = static_cast<size_t>(num_rows) * static_cast<size_t>(row_bytes);
  if (format == WeightFormat::kMlxAffine) {
    const auto num_groups =
        static_cast<size_t>(num_rows) * static_cast<size_t>(num_cols / group_size);
    total += 2 * num_groups * dtype_bytes(scale_dtype);
  }
  return total;
}

namespace {

float load_scale(const uint8_t* values, int64_t index, DType dtype) {
  if (dtype == DType::kF32) {
    float value;
    std::memcpy(&value, values + 4 * index, 4);
    return value;
  }
  uint16_t bits;
  std::memcpy(&bits, values + 2 * index, 2);
  return dtype == DType::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
}

// The codes of a row are one little-endian bit stream, lowest bit first; rows end on a word
// boundary, so that reading byte by byte stays inside the row.
void dequantize_mlx_row(const MatrixView& m, int64_t stored, float* out) {
  INVAR_CHECK(m.bits >= 1 && m.bits <= 8 && m.group_size > 0 && m.num_cols % m.group_size == 0,
              "%s: bits %d, group %d, %ld columns", m.name.c_str(), m.bits, m.group_size,
              long{m.num_cols});
  const uint8_t* codes = m.data + stored * m.row_bytes;
  const int64_t num_groups = m.num_cols / m.group_size;
  const uint32_t mask = (1u << m.bits) - 1;
  uint32_t window = 0;
  int available = 0;
  for (int64_t g = 0; g < num_groups; ++g) {
    const float scale = load_scale(m.scales, stored * num_groups + g, m.scale_dtype);
    const float bias = load_scale(m.biases, stored * num_groups + g, m.scale_dtype);
    for (int i = 0; i < m.group_size; ++i) {
      if (available < m.bits) {
        window |= static_cast<uint32_t>(*codes++) << available;
        available += 8;
      }
      *out++ = scale * static_cast<float>(window & mask) + bias;
      window >>= m.bits;
      available -= m.bits;
    }
  }
}

}  // namespace

void dequantize_row(const MatrixView& matrix, int64_t r, float* out) {
  INVAR_CHECK(r >= 0 && r < matrix.num_rows, "%s: row %ld of %ld", matrix.name.c_str(), long{r},
              long{matrix.num_rows});
  if (matrix.format == WeightFormat::kMlxAffine) {
    dequantize_mlx_row(matrix, matrix.stored_row(r), out);
  } else {
    dequantize_blocks(matrix.format, matrix.row_data(r), matrix.num_cols, out);
  }
}

}  // namespace invar
