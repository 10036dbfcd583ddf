// GGUF files that are right: value types, vocabulary, templates, alignment, every tensor type,
// split models. Files come from gguf_writer.h.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "gguf_writer.h"
#include "safetensors_writer.h"
#include "weights/checkpoint.h"
#include "weights/gguf_parse.h"

namespace invar {
namespace {

using testing::GgufWriter;
using ::testing::HasSubstr;
using testing::ModelFolder;

std::string error_of(GgufWriter& writer) {
  const std::vector<uint8_t> bytes = writer.bytes();
  auto parsed = parse_gguf(bytes);
  return parsed ? "" : parsed.error().message;
}

TEST(GgufTest, EveryValueType) {
  for (const uint32_t version : {2u, 3u}) {
    GgufWriter gguf;
    gguf.version = version;
    gguf.add("u8", uint8_t{255});
    gguf.add("i8", int8_t{-128});
    gguf.add("u16", uint16_t{65535});
    gguf.add("i16", int16_t{-32768});
    gguf.add("u32", uint32_t{4294967295u});
    gguf.add("i32", int32_t{-7});
    gguf.add("u64", uint64_t{1} << 62);
    gguf.add("u64.big", ~uint64_t{0});
    gguf.add("i64", int64_t{-1});
    gguf.add("f32", 0.5f);
    gguf.add("f64", 0.1);
    gguf.add("bool", true);
    gguf.add("string", "caf\xc3\xa9");
    gguf.add_array<int16_t>("ints", {1, -2, 3});
    gguf.add_array<bool>("bools", {true, false});
    gguf.add_strings("strings", {"a", "", "b"});
    gguf.add_nested<uint32_t>("nested", {{1, 2}, {}, {3}});
    gguf.add_array<float>("empty", {});
    const std::vector<uint8_t> bytes = gguf.bytes();
    auto parsed = parse_gguf(bytes);
    ASSERT_TRUE(parsed) << parsed.error().message;
    EXPECT_EQ(parsed->version, version);
    EXPECT_EQ(parsed->metadata.dump(),
              R"({"u8":255,"i8":-128,"u16":65535,"i16":-32768,"u32":4294967295,"i32":-7,)"
              R"("u64":4611686018427387904,"u64.big":18446744073709551616.0,"i64":-1,"f32":0.5,)"
              R"("f64":0.1,"bool":true,"string":"café","ints":[1,-2,3],"bools":[true,false],)"
              R"("strings":["a","","b"],"nested":[[1,2],[],[3]],"empty":[]})");
    EXPECT_FALSE(parsed->vocabulary.has_value());
    EXPECT_TRUE(parsed->generation_config.is_null());
  }
}

TEST(GgufTest, VocabularyTemplatesAndSampling) {
  GgufWriter gguf;
  gguf.add("general.architecture", "llama");
  gguf.add("tokenizer.ggml.model", "gpt2");
  gguf.add("tokenizer.ggml.pre", "smollm");
  gguf.add_strings("tokenizer.ggml.tokens", {"a", "b\0c", "\xff"});
  gguf.add_array<float>("tokenizer.ggml.scores", {0, -1.5f, -1000});
  gguf.add_array<uint8_t>("tokenizer.ggml.token_type", {1, 3, 6});
  gguf.add_strings("tokenizer.ggml.merges", {"a b"});
  gguf.add("tokenizer.ggml.eos_token_id", uint32_t{2});
  gguf.add("tokenizer.ggml.add_bos_token", false);
  gguf.add("tokenizer.chat_template", "default text");
  gguf.add("tokenizer.chat_template.tool_use", "tool text");
  gguf.add("tokenizer.huggingface.json", std::string(3 << 20, ' '));
  gguf.add("general.sampling.temp", 0.5f);
  gguf.add("general.sampling.top_k", int32_t{40});
  gguf.add("general.sampling.penalty_repeat", 1.5f);
  ModelFolder folder;
  gguf.write(folder.file("m.gguf"));
  auto opened = Checkpoint::open(folder.file("m.gguf"));
  ASSERT_TRUE(opened) << opened.error().message;
  const Checkpoint& c = **opened;
  ASSERT_TRUE(c.gguf_vocabulary.has_value());
  const auto& v = *c.gguf_vocabulary;
  EXPECT_EQ(v.model, "gpt2");
  EXPECT_EQ(v.pre, "smollm");
  EXPECT_EQ(v.tokens, (std::vector<std::string>{"a", "b", "\xff"}));
  EXPECT_EQ(v.scores, (std::vector<float>{0, -1.5f, -1000}));
  EXPECT_EQ(v.token_types, (std::vector<int32_t>{1, 3, 6}));
  EXPECT_EQ(v.merges, std::vector<std::string>{"a b"});
  EXPECT_EQ(v.keys.dump(),
            R"({"model":"gpt2","pre":"smollm","eos_token_id":2,"add_bos_token":false})");
  EXPECT_EQ(c.metadata.find("tokenizer.ggml.tokens"), nullptr);
  EXPECT_EQ(c.metadata.find("tokenizer.chat_template"), nullptr);
  ASSERT_EQ(c.chat_templates.size(), 2u);
  EXPECT_EQ(c.chat_templates[0], (std::pair<std::string, std::string>{"default", "default text"}));
  EXPECT_EQ(c.chat_templates[1], (std::pair<std::string, std::string>{"tool_use", "tool text"}));
  EXPECT_EQ(c.chat_template_source, "gguf");
  EXPECT_EQ(c.generation_config.dump(),
            R"({"do_sample":true,"temperature":0.5,"top_k":40,"repetition_penalty":1.5})");
}

TEST(GgufTest, TensorsOfEveryTypeAndShape) {
  const std::tuple<uint32_t, WeightFormat, int, int> types[] = {
      {0, WeightFormat::kF32, 1, 4},       {1, WeightFormat::kF16, 1, 2},
      {2, WeightFormat::kQ4_0, 32, 18},    {3, WeightFormat::kQ4_1, 32, 20},
      {6, WeightFormat::kQ5_0, 32, 22},    {7, WeightFormat::kQ5_1, 32, 24},
      {8, WeightFormat::kQ8_0, 32, 34},    {10, WeightFormat::kQ2_K, 256, 84},
      {11, WeightFormat::kQ3_K, 256, 110}, {12, WeightFormat::kQ4_K, 256, 144},
      {13, WeightFormat::kQ5_K, 256, 176}, {14, WeightFormat::kQ6_K, 256, 210},
      {20, WeightFormat::kIQ4_NL, 32, 18}, {23, WeightFormat::kIQ4_XS, 256, 136},
      {30, WeightFormat::kBF16, 1, 2},     {39, WeightFormat::kMXFP4, 32, 17},
  };
  for (const uint64_t alignment : {8u, 32u, 4096u}) {
    GgufWriter gguf;
    gguf.alignment = alignment;
    if (alignment != 32) gguf.add("general.alignment", static_cast<uint32_t>(alignment));
    for (const auto& [id, format, elements, bytes] : types)
      gguf.add_tensor(
          "t" + std::to_string(id), {3, 2, elements}, id,
          std::vector<uint8_t>(static_cast<size_t>(6 * bytes), static_cast<uint8_t>(id + 1)));
    gguf.add_f32("vector", {5}, {1, 2, 3, 4, 5});
    ModelFolder folder;
    gguf.write(folder.file("m.gguf"));
    auto opened = Checkpoint::open(folder.path());  // the only model of its folder
    ASSERT_TRUE(opened) << opened.error().message;
    ASSERT_EQ((*opened)->tensors().size(), std::size(types) + 1);
    for (const auto& [id, format, elements, bytes] : types) {
      const TensorInfo* tensor = (*opened)->find("t" + std::to_string(id));
      ASSERT_NE(tensor, nullptr);
      const MatrixView& m = tensor->matrix;
      EXPECT_EQ(m.format, format);
      EXPECT_EQ(tensor->shape, (std::vector<int64_t>{3, 2, elements}));
      EXPECT_EQ(m.num_rows, 6);
      EXPECT_EQ(m.num_cols, elements);
      EXPECT_EQ(m.row_bytes, bytes);
      EXPECT_EQ(m.num_bytes(), static_cast<size_t>(6 * bytes));
      EXPECT_EQ(m.name, "m.gguf: 't" + std::to_string(id) + "'");
      for (size_t i = 0; i < m.num_bytes(); ++i) ASSERT_EQ(m.data[i], id + 1);
      (*opened)->drop_pages(m);
    }
    const TensorInfo* vector = (*opened)->find("vector");
    ASSERT_NE(vector, nullptr);
    EXPECT_EQ(vector->matrix.num_rows, 1);
    float values[5];
    dequantize_row(vector->matrix, 0, values);
    EXPECT_EQ(values[4], 5.f);
  }
}

TEST(GgufTest, UnsupportedTensorTypesAreNamed) {
  for (const auto& [id, name] :
       {std::pair{16u, "IQ2_XXS"}, std::pair{18u, "IQ3_XXS"}, std::pair{19u, "IQ1_S"},
        std::pair{34u, "TQ1_0"}, std::pair{40u, "NVFP4"}, std::pair{26u, "I32"}}) {
    GgufWriter gguf;
    gguf.add_tensor("blk.0.attn_q.weight", {256}, id, std::vector<uint8_t>(2048));
    const std::string error = error_of(gguf);
    EXPECT_THAT(error, HasSubstr("'blk.0.attn_q.weight'"));
    EXPECT_THAT(error, HasSubstr(name));
  }
  for (const uint32_t id : {4u, 5u, 31u, 36u, 1000u}) {
    GgufWriter gguf;
    gguf.add_tensor("w", {256}, id, std::vector<uint8_t>(2048));
    EXPECT_THAT(error_of(gguf), HasSubstr("unknown tensor type " + std::to_string(id)));
  }
}

TEST(GgufTest, WhatIsWrongIsNamed) {
  const auto with = [](const auto& change) {
    GgufWriter gguf;
    change(gguf);
    return error_of(gguf);
  };
  EXPECT_THAT(with([](GgufWriter& g) { g.version = 1; }), HasSubstr("version 1"));
  EXPECT_THAT(with([](GgufWriter& g) { g.version = 0x03000000; }), HasSubstr("big-endian"));
  EXPECT_THAT(with([](GgufWriter& g) {
                g.add("k", 1);
                g.add("k", 2);
              }),
              HasSubstr("key 'k': stands twice"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add("k\n", 0.f / 0.f); }), HasSubstr("key 'k\\x0a'"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add_raw("k", 7, {2}); }), HasSubstr("boolean 2"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add_raw("k", 13, {}); }), HasSubstr("unknown type 13"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add("general.alignment", uint32_t{24}); }),
              HasSubstr("'general.alignment' is 24"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add("general.alignment", 0); }),
              HasSubstr("'general.alignment' is 0"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add("general.alignment", "32"); }),
              HasSubstr("general.alignment"));
  EXPECT_THAT(with([](GgufWriter& g) {
                g.add_strings("tokenizer.ggml.tokens", {"a", "b"});
                g.add_array<float>("tokenizer.ggml.scores", {1});
              }),
              HasSubstr("tokenizer.ggml.scores"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add_array<int>("tokenizer.ggml.tokens", {1}); }),
              HasSubstr("tokenizer.ggml.tokens"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add("tokenizer.chat_template", 1); }),
              HasSubstr("tokenizer.chat_template"));
  EXPECT_THAT(with([](GgufWriter& g) {
                g.add_f32("w", {1}, {1});
                g.add_f32("w", {1}, {1});
              }),
              HasSubstr("tensor 'w': stands twice"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add_tensor("w", {33}, 8, std::vector<uint8_t>(68)); }),
              HasSubstr("rows of 33"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add_tensor("w", {0}, 0, {}); }), HasSubstr("'w'"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add_tensor("w", {}, 0, {}); }), HasSubstr("0 dimensions"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add_tensor("w", {1, 1, 1, 1, 1}, 0, {0, 0, 0, 0}); }),
              HasSubstr("5 dimensions"));
  EXPECT_THAT(with([](GgufWriter& g) { g.add_f32(std::string(65, 'w'), {1}, {1}); }),
              HasSubstr("a tensor name"));
  EXPECT_THAT(with([](GgufWriter& g) {  // the second needs more than is there
                g.add_f32("a", {1}, {1});
                g.add_tensor("b", {64}, 0, {0, 0, 0, 0});
              }),
              HasSubstr("tensor 'b'"));
  EXPECT_THAT(with([](GgufWriter& g) {  // 'a' claims the bytes of 'b'
                g.add_tensor("a", {16}, 0, std::vector<uint8_t>(4));
                g.add_f32("b", {8}, std::vector<float>(8));
              }),
              HasSubstr("'a' and 'b' overlap"));
}

// A model in three parts, tensors 0..2 in the first, 3 in the second, 4 in the third.
void write_split(const ModelFolder& folder, uint16_t claimed_tensors = 5) {
  const int first[] = {0, 3, 4, 5};
  for (int part = 0; part < 3; ++part) {
    GgufWriter gguf;
    if (part == 0) gguf.add("general.architecture", "llama");
    gguf.add("split.no", static_cast<uint16_t>(part));
    gguf.add("split.count", uint16_t{3});
    gguf.add("split.tensors.count", static_cast<int32_t>(claimed_tensors));
    for (int i = first[part]; i < first[part + 1]; ++i)
      gguf.add_f32("t" + std::to_string(i), {2}, {static_cast<float>(i), 0.5f});
    gguf.write(folder.file("m-0000" + std::to_string(part + 1) + "-of-00003.gguf"));
  }
}

TEST(GgufSplitTest, AnyPartOpensTheWholeModel) {
  ModelFolder folder;
  write_split(folder);
  std::string fingerprint;
  for (const std::string& given :
       {folder.file("m-00001-of-00003.gguf"), folder.file("m-00002-of-00003.gguf"),
        folder.file("m-00003-of-00003.gguf"), folder.path()}) {
    auto opened = Checkpoint::open(given);
    ASSERT_TRUE(opened) << opened.error().message;
    EXPECT_EQ((*opened)->path, given);
    EXPECT_EQ((*opened)->files.size(), 3u);
    EXPECT_EQ((*opened)->metadata.required<std::string>("general.architecture").value(), "llama");
    ASSERT_EQ((*opened)->tensors().size(), 5u);
    for (int i = 0; i < 5; ++i) {
      const TensorInfo& tensor = (*opened)->tensors()[static_cast<size_t>(i)];
      EXPECT_EQ(tensor.name, "t" + std::to_string(i));
      float values[2];
      dequantize_row(tensor.matrix, 0, values);
      EXPECT_EQ(values[0], static_cast<float>(i));
    }
    if (fingerprint.empty()) fingerprint = (*opened)->fingerprint;
    EXPECT_EQ((*opened)->fingerprint, fingerprint);
  }
}

TEST(GgufSplitTest, MissingAndWrongPartsAreNamed) {
  ModelFolder folder;
  write_split(folder);
  const std::string first = folder.file("m-00001-of-00003.gguf");
  const std::string second = folder.file("m-00002-of-00003.gguf");
  std::filesystem::rename(second, folder.file("aside"));
  EXPECT_THAT(Checkpoint::open(first).error().message,
              HasSubstr("m-00002-of-00003.gguf: part 2 of 3"));
  std::filesystem::copy_file(first, second);
  EXPECT_THAT(Checkpoint::open(first).error().message, HasSubstr("says it is part 1 of 3"));
  std::filesystem::remove(second);
  std::filesystem::rename(folder.file("aside"), second);
  std::filesystem::copy_file(first, folder.file("renamed.gguf"));
  EXPECT_THAT(Checkpoint::open(folder.file("renamed.gguf")).error().message,
              HasSubstr("give the parts their names back"));
  write_split(folder, 6);
  EXPECT_THAT(Checkpoint::open(first).error().message, HasSubstr("split.tensors.count"));
}

TEST(GgufTest, FingerprintFollowsHeaderAndData) {
  ModelFolder folder;
  const auto fingerprint = [&](const char* name, float value) {
    GgufWriter gguf;
    gguf.add("general.name", name);
    std::vector<float> values(1 << 18, 1.f);
    values.back() = value;
    gguf.add_f32("w", {1 << 18}, values);
    gguf.write(folder.file("m.gguf"));
    auto opened = Checkpoint::open(folder.file("m.gguf"));
    EXPECT_TRUE(opened);
    return (*opened)->fingerprint;
  };
  const std::string a = fingerprint("a", 1);
  EXPECT_EQ(a.size(), 64u);
  EXPECT_EQ(fingerprint("a", 1), a);
  EXPECT_NE(fingerprint("b", 1), a);
  EXPECT_NE(fingerprint("a", 2), a);
}

}  // namespace
}  // namespace invar
