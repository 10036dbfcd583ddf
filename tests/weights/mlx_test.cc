// MLX folders: three tensors become one, with bits and group size from config.json, its overrides,
// or the shapes. Values of every width are tensor/quant_test.cc's; here, that the right ones
// arrive.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "safetensors_writer.h"
#include "weights/checkpoint.h"

namespace invar {
namespace {

using testing::bytes_of;
using ::testing::HasSubstr;
using testing::ModelFolder;
using testing::SafetensorsWriter;

// Module `name`, [2, num_cols], every code 1, scale 2 in row 0 and -3 in row 1, bias 0.5.
void add_module(SafetensorsWriter& w, const std::string& name, int bits, int group,
                int64_t num_cols, int64_t num_experts = 0) {
  const int64_t num_rows = num_experts > 0 ? 2 * num_experts : 2;
  std::vector<uint8_t> codes(static_cast<size_t>(num_rows * num_cols * bits / 8));
  for (int64_t i = 0; i < num_rows * num_cols; ++i) {
    const int64_t at = i * bits;
    codes[static_cast<size_t>(at / 8)] |= static_cast<uint8_t>(1 << (at % 8));
  }
  std::vector<uint16_t> scales, biases;
  for (int64_t r = 0; r < num_rows; ++r)
    for (int64_t g = 0; g < num_cols / group; ++g) {
      scales.push_back(r % 2 == 0 ? 0x4000 : 0xc040);  // bf16 2, -3
      biases.push_back(0x3f00);                        // 0.5
    }
  std::vector<int64_t> lead = {2};
  if (num_experts > 0) lead = {num_experts, 2};
  auto shape = [&](int64_t last) {
    std::vector<int64_t> s = lead;
    s.push_back(last);
    return s;
  };
  w.add(name + ".biases", "BF16", shape(num_cols / group), bytes_of(biases));
  w.add(name + ".scales", "BF16", shape(num_cols / group), bytes_of(scales));
  w.add(name + ".weight", "U32", shape(num_cols * bits / 32), codes);
}

void expect_module(const Checkpoint& c, const std::string& name, int bits, int group,
                   int64_t num_cols) {
  const TensorInfo* tensor = c.find(name + ".weight");
  ASSERT_NE(tensor, nullptr) << name;
  const MatrixView& m = tensor->matrix;
  EXPECT_EQ(m.format, WeightFormat::kMlxAffine) << name;
  EXPECT_EQ(m.bits, bits) << name;
  EXPECT_EQ(m.group_size, group) << name;
  EXPECT_EQ(m.num_cols, num_cols) << name;
  EXPECT_EQ(tensor->shape.back(), num_cols) << name;
  EXPECT_EQ(m.scale_dtype, DType::kBF16) << name;
  EXPECT_EQ(c.find(name + ".scales"), nullptr);
  EXPECT_EQ(c.find(name + ".biases"), nullptr);
  std::vector<float> row(static_cast<size_t>(m.num_cols));
  for (int64_t r = 0; r < m.num_rows; ++r) {
    dequantize_row(m, r, row.data());
    for (const float x : row) ASSERT_EQ(x, r % 2 == 0 ? 2.5f : -2.5f) << name;
  }
  c.drop_pages(m);
}

TEST(MlxTest, DefaultsOverridesAndWhatShapesSay) {
  ModelFolder folder;
  folder.write("config.json", R"({"quantization":{"group_size":64,"bits":4,"mode":"affine",
      "model.override":{"group_size":32,"bits":8},
      "model.partial":{"bits":3},
      "model.yes":true,
      "model.no":false,
      "model.wrong":{"group_size":64,"bits":8}}})");
  SafetensorsWriter w;
  add_module(w, "model.plain", 4, 64, 128);
  add_module(w, "model.override", 8, 32, 64);
  add_module(w, "model.partial", 3, 64, 128);
  add_module(w, "model.yes", 4, 64, 64);
  add_module(w, "model.wrong", 2, 64, 128);           // bits solved from the shapes
  add_module(w, "model.unlisted6", 6, 64, 192);       // the same
  add_module(w, "model.unlisted5g128", 5, 128, 128);  // 640 = 5 * 128 only
  add_module(w, "model.experts", 4, 64, 64, 3);
  w.add("model.no.weight", "BF16", {1, 2}, bytes_of<uint16_t>({0x3f80, 0x4000}));
  w.add("model.plain.bias", "BF16", {2}, bytes_of<uint16_t>({0x3f80, 0x4000}));
  w.add("model.odd.biases", "F32", {1}, bytes_of<float>({1}));  // no module: an ordinary tensor
  w.write(folder.file("model.safetensors"));
  auto opened = Checkpoint::open(folder.path());
  ASSERT_TRUE(opened) << opened.error().message;
  const Checkpoint& c = **opened;
  EXPECT_EQ(c.tensors().size(), 11u);
  expect_module(c, "model.plain", 4, 64, 128);
  expect_module(c, "model.override", 8, 32, 64);
  expect_module(c, "model.partial", 3, 64, 128);
  expect_module(c, "model.yes", 4, 64, 64);
  expect_module(c, "model.wrong", 2, 64, 128);
  expect_module(c, "model.unlisted6", 6, 64, 192);
  expect_module(c, "model.unlisted5g128", 5, 128, 128);
  expect_module(c, "model.experts", 4, 64, 64);
  EXPECT_EQ(c.find("model.experts.weight")->shape, (std::vector<int64_t>{3, 2, 64}));
  EXPECT_EQ(c.find("model.experts.weight")->matrix.num_rows, 6);
  EXPECT_EQ(c.find("model.no.weight")->matrix.format, WeightFormat::kBF16);
  EXPECT_NE(c.find("model.plain.bias"), nullptr);
  EXPECT_NE(c.find("model.odd.biases"), nullptr);
}

TEST(MlxTest, EveryWidthAndGroupFromConfig) {
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    for (const int group : {32, 64, 128}) {
      ModelFolder folder;
      folder.write("config.json", "{\"quantization\":{\"group_size\":" + std::to_string(group) +
                                      ",\"bits\":" + std::to_string(bits) + "}}");
      SafetensorsWriter w;
      add_module(w, "m", bits, group, 256);
      w.write(folder.file("model.safetensors"));
      auto opened = Checkpoint::open(folder.path());
      ASSERT_TRUE(opened) << opened.error().message;
      expect_module(**opened, "m", bits, group, 256);
    }
  }
}

TEST(MlxTest, WhatCannotBeReadIsNamed) {
  const auto error = [](const char* config, const auto& fill) {
    ModelFolder folder;
    folder.write("config.json", config);
    SafetensorsWriter w;
    fill(w);
    w.write(folder.file("model.safetensors"));
    auto opened = Checkpoint::open(folder.path());
    return opened ? std::string() : opened.error().message;
  };
  const auto module = [](int bits, int group, int64_t cols) {
    return [=](SafetensorsWriter& w) { add_module(w, "lm_head", bits, group, cols); };
  };
  EXPECT_THAT(
      error(R"({"quantization":{"group_size":32,"bits":4,"mode":"mxfp4"}})", module(4, 32, 64)),
      HasSubstr("mode 'mxfp4'"));
  EXPECT_THAT(error(R"({"quantization":{"lm_head":{"mode":"nvfp4"}}})", module(4, 64, 64)),
              HasSubstr("'quantization' of 'lm_head'"));
  EXPECT_THAT(error(R"({"quantization":{"bits":"4"}})", module(4, 64, 64)), HasSubstr("bits"));
  // 6 bits in groups of 128, or 3 * 256, nothing else: found without a config. 256 has three
  // readings, of which the config's group or bits must choose.
  EXPECT_EQ(error("{}", module(6, 128, 128)), "");
  EXPECT_THAT(error(R"({"quantization":{"group_size":16,"bits":3}})", module(4, 64, 128)),
              HasSubstr("'lm_head.weight'"));
  const auto shapes = [](std::vector<int64_t> weight, std::vector<int64_t> scales,
                         std::vector<int64_t> biases) {
    return [=](SafetensorsWriter& w) {
      const auto add = [&](const char* name, const char* dtype, const std::vector<int64_t>& shape) {
        int64_t count = 1;
        for (const int64_t dim : shape) count *= dim;
        w.add(name, dtype, shape, std::vector<uint8_t>(static_cast<size_t>(count) * 4));
      };
      add("m.weight", "U32", weight);
      add("m.scales", "F32", scales);
      add("m.biases", "F32", biases);
    };
  };
  EXPECT_EQ(error("{}", shapes({2, 8}, {2, 1}, {2, 1})), "");
  EXPECT_THAT(error("{}", shapes({2, 8}, {3, 1}, {3, 1})), HasSubstr("[3,1]"));
  EXPECT_THAT(error("{}", shapes({2, 8}, {2, 1}, {2, 2})), HasSubstr("[2,2]"));
  EXPECT_THAT(error("{}", shapes({8}, {1}, {1})), HasSubstr("'m.weight'"));
  EXPECT_THAT(error("{}", shapes({2, 7}, {2, 1}, {2, 1})), HasSubstr("do not fit"));
  EXPECT_THAT(error("{}",
                    [](SafetensorsWriter& w) {
                      w.add("m.weight", "U32", {1, 8}, std::vector<uint8_t>(32));
                      w.add("m.scales", "F32", {1, 1}, std::vector<uint8_t>(4));
                    }),
              HasSubstr("without biases"));
}

}  // namespace
}  // namespace invar
