// Block formats against specs/gguf_quant_vectors.tsv: one block a type, values of an independent
// implementation that agreed with ggml.
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "tensor/quant.h"

namespace invar {
namespace {

TEST(QuantGoldenTest, EveryRowOfTheVectorFile) {
  const std::map<std::string, WeightFormat> formats = {
      {"Q4_0", WeightFormat::kQ4_0},     {"Q4_1", WeightFormat::kQ4_1},
      {"Q5_0", WeightFormat::kQ5_0},     {"Q5_1", WeightFormat::kQ5_1},
      {"Q8_0", WeightFormat::kQ8_0},     {"Q2_K", WeightFormat::kQ2_K},
      {"Q3_K", WeightFormat::kQ3_K},     {"Q4_K", WeightFormat::kQ4_K},
      {"Q5_K", WeightFormat::kQ5_K},     {"Q6_K", WeightFormat::kQ6_K},
      {"IQ4_NL", WeightFormat::kIQ4_NL}, {"IQ4_XS", WeightFormat::kIQ4_XS},
      {"MXFP4", WeightFormat::kMXFP4}};
  std::ifstream in(INVAR_TEST_DATA "/golden/weights/gguf_quant_vectors.tsv");
  ASSERT_TRUE(in.good());
  int num_checked = 0;
  for (std::string line; std::getline(in, line);) {
    if (line.empty() || line[0] == '#') continue;
    std::istringstream fields(line);
    std::string type, hex, values;
    ASSERT_TRUE(fields >> type >> hex >> values);
    if (type == "NVFP4") continue;  // turned away by the readers
    ASSERT_TRUE(formats.contains(type)) << type;
    const WeightFormat format = formats.at(type);
    EXPECT_EQ(format_name(format), type);
    std::vector<uint8_t> block;
    for (size_t i = 0; i < hex.size(); i += 2)
      block.push_back(static_cast<uint8_t>(std::stoi(hex.substr(i, 2), nullptr, 16)));
    const BlockShape shape = block_shape(format);
    ASSERT_EQ(block.size(), static_cast<size_t>(shape.num_bytes)) << type;
    std::vector<float> got(static_cast<size_t>(shape.num_elements));
    dequantize_blocks(format, block.data(), shape.num_elements, got.data());
    std::istringstream list(values);
    size_t i = 0;
    for (std::string number; std::getline(list, number, ','); ++i) {
      const float expected = std::stof(number);
      ASSERT_LT(i, got.size());
      EXPECT_NEAR(got[i], expected, 1e-6f * std::abs(expected)) << type << " element " << i;
    }
    EXPECT_EQ(i, got.size()) << type;
    ++num_checked;
  }
  EXPECT_EQ(num_checked, 13);
}

}  // namespace
}  // namespace invar
