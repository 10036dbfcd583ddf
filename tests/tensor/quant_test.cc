// Half precision, MLX affine rows, stored rows and sizes. MLX codes come from a packer of this file
// that works on single bits; expectations are computed in double.
#include "tensor/quant.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>

namespace invar {
namespace {

// The value of fp16 bits from the definition, in double.
double f16_value(uint16_t bits) {
  const int exponent = (bits >> 10) & 31, mantissa = bits & 1023;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == 31)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

TEST(HalfTest, EveryValueReadsExactlyAndRoundTrips) {
  for (uint32_t bits = 0; bits < 65536; ++bits) {
    const double expected = f16_value(static_cast<uint16_t>(bits));
    const float got = f16_to_f32(static_cast<uint16_t>(bits));
    if (std::isnan(expected)) {
      EXPECT_TRUE(std::isnan(got)) << bits;
      EXPECT_TRUE(std::isnan(f16_value(f32_to_f16(got)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(got), expected) << bits;
    ASSERT_EQ(std::signbit(got), (bits & 0x8000) != 0) << bits;
    ASSERT_EQ(f32_to_f16(got), bits);
  }
}

TEST(HalfTest, RoundsToNearestEven) {
  // Between each pair of neighbours: the middle goes to the even one, a hair beside it to the
  // nearer.
  for (uint32_t bits = 0; bits < 0x7bff; ++bits) {
    const auto low = static_cast<uint16_t>(bits), high = static_cast<uint16_t>(bits + 1);
    const auto middle = static_cast<float>((f16_value(low) + f16_value(high)) / 2);
    ASSERT_EQ(f32_to_f16(middle), (bits & 1) == 0 ? low : high) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafterf(middle, 0)), low) << bits;
    ASSERT_EQ(f32_to_f16(std::nextafterf(middle, 1e9f)), high) << bits;
    ASSERT_EQ(f32_to_f16(-middle), ((bits & 1) == 0 ? low : high) | 0x8000) << bits;
  }
  EXPECT_EQ(f32_to_f16(65519.996f), 0x7bff);
  EXPECT_EQ(f32_to_f16(65520.f), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::infinity()), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::max()), 0x7c00);
  EXPECT_EQ(f32_to_f16(std::numeric_limits<float>::denorm_min()), 0);
}

struct AffineCase {
  int bits, group_size;
  DType dtype;
};

class MlxAffineTest : public ::testing::TestWithParam<AffineCase> {};

TEST_P(MlxAffineTest, RowsMatchBitByBitPacking) {
  const auto [bits, group_size, dtype] = GetParam();
  constexpr int kRows = 3;
  const int num_cols = 3 * group_size, num_groups = 3;
  std::mt19937 random(static_cast<uint32_t>(bits * 1000 + group_size));
  std::vector<int> codes(static_cast<size_t>(kRows * num_cols));
  for (int& code : codes) code = static_cast<int>(random() % (1u << bits));

  // Scales of both signs, exact in every dtype: small integers over 64.
  const size_t value_bytes = dtype_bytes(dtype);
  std::vector<double> scales, biases;
  // One byte in front, so that nothing is aligned.
  std::vector<uint8_t> scale_bytes(1), bias_bytes(1), packed(1);
  const auto append = [&](std::vector<uint8_t>& out, double value) {
    const auto f = static_cast<float>(value);
    uint32_t raw;
    std::memcpy(&raw, &f, 4);
    if (dtype == DType::kBF16) raw >>= 16;
    if (dtype == DType::kF16) raw = f32_to_f16(f);
    for (size_t i = 0; i < value_bytes; ++i) out.push_back(static_cast<uint8_t>(raw >> (8 * i)));
  };
  for (int i = 0; i < kRows * num_groups; ++i) {
    scales.push_back((static_cast<int>(random() % 127) - 63) / 64.0);
    biases.push_back((static_cast<int>(random() % 127) - 63) / 8.0);
    append(scale_bytes, scales.back());
    append(bias_bytes, biases.back());
  }
  const int row_bits = num_cols * bits;
  ASSERT_EQ(row_bits % 32, 0);
  packed.resize(1 + static_cast<size_t>(kRows * row_bits / 8));
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < num_cols; ++i) {
      for (int b = 0; b < bits; ++b) {
        if (((codes[static_cast<size_t>(r * num_cols + i)] >> b) & 1) == 0) continue;
        const int at = r * row_bits + i * bits + b;
        packed[1 + static_cast<size_t>(at / 8)] |= static_cast<uint8_t>(1 << (at % 8));
      }
    }
  }

  MatrixView m;
  m.name = "test";
  m.format = WeightFormat::kMlxAffine;
  m.num_rows = kRows;
  m.num_cols = num_cols;
  m.data = packed.data() + 1;
  m.row_bytes = row_bits / 8;
  m.bits = bits;
  m.group_size = group_size;
  m.scale_dtype = dtype;
  m.scales = scale_bytes.data() + 1;
  m.biases = bias_bytes.data() + 1;
  EXPECT_EQ(m.num_bytes(), packed.size() - 1 + scale_bytes.size() - 1 + bias_bytes.size() - 1);

  std::vector<float> row(static_cast<size_t>(num_cols));
  for (int r = 0; r < kRows; ++r) {
    dequantize_row(m, r, row.data());
    for (int i = 0; i < num_cols; ++i) {
      const auto group = static_cast<size_t>(r * num_groups + i / group_size);
      const double expected =
          scales[group] * codes[static_cast<size_t>(r * num_cols + i)] + biases[group];
      ASSERT_EQ(static_cast<double>(row[static_cast<size_t>(i)]), expected)
          << "row " << r << " column " << i;
    }
  }
}

std::vector<AffineCase> affine_cases() {
  std::vector<AffineCase> cases;
  for (const int bits : {2, 3, 4, 5, 6, 8})
    for (const int group : {32, 64, 128})
      for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16})
        cases.push_back({bits, group, dtype});
  return cases;
}
std::string affine_name(const ::testing::TestParamInfo<AffineCase>& info) {
  const std::string dtypes[] = {"f32", "f16", "bf16"};
  return "b" + std::to_string(info.param.bits) + "g" + std::to_string(info.param.group_size) +
         dtypes[static_cast<int>(info.param.dtype)];
}
INSTANTIATE_TEST_SUITE_P(All, MlxAffineTest, ::testing::ValuesIn(affine_cases()), affine_name);

TEST(MatrixViewTest, InterleavedHeadsReadInHuggingFaceOrder) {
  // Two heads of 6 rows; stored row 2j + s of a head is row 3s + j.
  std::vector<float> stored(12);
  for (size_t r = 0; r < 12; ++r) stored[r] = static_cast<float>(r);
  MatrixView m;
  m.num_rows = 12;
  m.num_cols = 1;
  m.data = reinterpret_cast<const uint8_t*>(stored.data());
  m.row_bytes = 4;
  m.interleaved_head_dim = 6;
  const float expected[12] = {0, 2, 4, 1, 3, 5, 6, 8, 10, 7, 9, 11};
  for (int64_t r = 0; r < 12; ++r) {
    float value;
    dequantize_row(m, r, &value);
    EXPECT_EQ(value, expected[r]) << r;
  }
}

TEST(BlocksTest, SeveralBlocksAndFloatFormats) {
  // Two Q8_0 blocks with scales 1 and 2, unaligned.
  std::vector<uint8_t> bytes(1 + 68);
  bytes[1] = 0x00, bytes[2] = 0x3c, bytes[35] = 0x00, bytes[36] = 0x40;
  for (int i = 0; i < 32; ++i) {
    bytes[static_cast<size_t>(3 + i)] = static_cast<uint8_t>(i - 16);
    bytes[static_cast<size_t>(37 + i)] = static_cast<uint8_t>(16 - i);
  }
  std::vector<float> out(64);
  dequantize_blocks(WeightFormat::kQ8_0, bytes.data() + 1, 64, out.data());
  for (int i = 0; i < 32; ++i) {
    EXPECT_EQ(out[static_cast<size_t>(i)], static_cast<float>(i - 16));
    EXPECT_EQ(out[static_cast<size_t>(32 + i)], static_cast<float>(2 * (16 - i)));
  }
  const uint8_t halves[] = {0x00, 0x3c, 0x00, 0xc0};  // fp16 1, -2
  const uint8_t brains[] = {0x80, 0x3f, 0x00, 0xc0};  // bf16 1, -2
  const uint8_t floats[] = {0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0};
  for (const auto& [format, data] :
       {std::pair{WeightFormat::kF16, halves}, std::pair{WeightFormat::kBF16, brains},
        std::pair{WeightFormat::kF32, floats}}) {
    dequantize_blocks(format, data, 2, out.data());
    EXPECT_EQ(out[0], 1.f) << format_name(format);
    EXPECT_EQ(out[1], -2.f) << format_name(format);
  }
}

TEST(BlocksTest, Mxfp4ScaleEnds) {
  std::vector<uint8_t> block(17, 0x22);  // every element 1.0 * scale
  float out[32];
  block[0] = 0;
  dequantize_blocks(WeightFormat::kMXFP4, block.data(), 32, out);
  EXPECT_EQ(out[0], 0x1p-127f);
  block[0] = 254;
  dequantize_blocks(WeightFormat::kMXFP4, block.data(), 32, out);
  EXPECT_EQ(out[31], 0x1p127f);
  block[0] = 255;
  dequantize_blocks(WeightFormat::kMXFP4, block.data(), 32, out);
  EXPECT_TRUE(std::isnan(out[0]));
}

}  // namespace
}  // namespace invar
