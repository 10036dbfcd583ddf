// Weight formats: how a checkpoint stores a matrix, and one row of it as fp32. Layouts and
// formulas: specs/weights.md (GGUF blocks section 3.3, MLX affine section 2.1). No kernels here; a
// backend reads the same bytes into its own packed form.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "tensor/tensor.h"

namespace invar {

enum class WeightFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  kQ4_0,
  kQ4_1,
  kQ5_0,
  kQ5_1,
  kQ8_0,
  kQ2_K,
  kQ3_K,
  kQ4_K,
  kQ5_K,
  kQ6_K,
  kIQ4_NL,
  kIQ4_XS,
  kMXFP4,
  kMlxAffine,  // bits, group_size, scales and biases beside the codes
};

// Elements and bytes of one block along the input dimension. Float formats: 1 element. kMlxAffine
// has no interleaved block; its row bytes come from bits.
struct BlockShape {
  int num_elements;
  int num_bytes;
};
BlockShape block_shape(WeightFormat format);
const char* format_name(WeightFormat format);  // "Q4_K", "BF16", "MLX affine"

// One matrix [num_rows (out), num_cols (in)] as it stands in a checkpoint; points into the mapped
// file. A 1-D tensor has num_rows 1.
struct MatrixView {
  std::string name;  // "file: 'tensor'" for messages
  WeightFormat format = WeightFormat::kF32;
  int64_t num_rows = 0;
  int64_t num_cols = 0;
  const uint8_t* data = nullptr;  // not necessarily aligned
  int64_t row_bytes = 0;          // stored row r begins at data + r * row_bytes

  // kMlxAffine: w = scale * q + bias for groups of group_size along a row; scales and biases are
  // [num_rows, num_cols / group_size] of scale_dtype.
  int bits = 0;
  int group_size = 0;
  DType scale_dtype = DType::kF32;
  const uint8_t* scales = nullptr;
  const uint8_t* biases = nullptr;

  // GGUF files of arch "llama" store the rows of each q and k head interleaved (specs/weights.md
  // 3.6). 0: rows stand in order. d > 0: row s*d/2 + j of a head is stored as row 2j + s.
  int interleaved_head_dim = 0;

  // Where row r is stored.
  int64_t stored_row(int64_t r) const;
  const uint8_t* row_data(int64_t r) const { return data + stored_row(r) * row_bytes; }
  size_t num_bytes() const;  // codes, scales and biases together
};

// Row r as fp32, `out` has num_cols elements.
void dequantize_row(const MatrixView& matrix, int64_t r, float* out);

// `count` elements (a multiple of the block) of a GGUF or float format.
void dequantize_blocks(WeightFormat format, const uint8_t* blocks, int64_t count, float* out);

// fp16 and bf16 bits to fp32 (exact), fp32 to fp16 (round to nearest even).
float f16_to_f32(uint16_t bits);
uint16_t f32_to_f16(float value);
inline float bf16_to_f32(uint16_t bits) {
  const uint32_t wide = static_cast<uint32_t>(bits) << 16;
  float value;
  __builtin_memcpy(&value, &wide, 4);
  return value;
}

}  // namespace invar
