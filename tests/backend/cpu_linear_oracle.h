// Test side of the cpu backend's linear kernels: random matrices in every checkpoint format, and
// the arithmetic "cpu-1" computed from the file's blocks. Written from specs/weights.md and
// design/cpu-kernels.md section 2, element by element; shares no code with the kernels or the
// packing.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "tensor/quant.h"

namespace invar::test {

struct FormatSpec {
  WeightFormat format = WeightFormat::kF32;
  int bits = 0;  // MLX only, as the next two
  int group_size = 0;
  DType scale_dtype = DType::kF16;

  int block() const;  // row lengths are multiples of this
  std::string name() const;
};
std::vector<FormatSpec> all_formats();

// A matrix that owns its bytes.
struct OwnedMatrix {
  std::vector<uint8_t> data, scales, biases;
  MatrixView view;
};
OwnedMatrix random_matrix(const FormatSpec& spec, int64_t num_rows, int64_t num_cols,
                          std::mt19937& random);

// One output of cpu-1: row `row` of the matrix against x, activations of 8 or 12 bits (floating
// point weights: an fp32 fma chain).
float linear_oracle(const MatrixView& matrix, int64_t row, const float* x, int activation_bits);

}  // namespace invar::test
