// Every family against logits of an independent implementation (transformers 5.24; see
// tools/make_golden_models.py), from safetensors, from llama.cpp's conversion of the same model,
// and from an MLX folder that mixes all bit widths.
#include <cstring>

#include "base/json.h"
#include "models/harness.h"

namespace invar::testing {
namespace {

// A .npy file of little-endian float32 [rows, cols] in C order.
Logits read_npy(const std::string& path) {
  const auto text = read_file(path, 1 << 24);
  EXPECT_TRUE(text.ok()) << path;
  if (!text) return {};
  const std::string& bytes = *text;
  const auto header_size = static_cast<uint8_t>(bytes[8]) | static_cast<uint8_t>(bytes[9]) << 8;
  const std::string header = bytes.substr(10, static_cast<size_t>(header_size));
  EXPECT_NE(header.find("'<f4'"), std::string::npos) << header;
  size_t rows = 0, cols = 0;
  EXPECT_EQ(
      std::sscanf(header.c_str() + header.find("'shape'"), "'shape': (%zu, %zu)", &rows, &cols), 2);
  Logits logits(rows, std::vector<float>(cols));
  for (size_t r = 0; r < rows; ++r)
    std::memcpy(logits[r].data(), bytes.data() + 10 + header_size + r * cols * 4, cols * 4);
  return logits;
}

std::vector<int32_t> read_tokens(const std::string& path) {
  const auto text = read_file(path, 1 << 20);
  EXPECT_TRUE(text.ok()) << path;
  std::vector<int32_t> ids;
  if (!text) return ids;
  const auto json = Json::parse(*text);
  for (const Json& id : json->items()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

struct Golden {
  const char* family;
  const char* file;  // beside the logits; "" is the folder itself
  // GGUF cannot say gemma3's query_pre_attn_scalar, so that the converted file is another model.
  const char* logits = "/ref_logits.npy";
};

class GoldenTest : public ::testing::TestWithParam<Golden> {};

TEST_P(GoldenTest, ReferenceMeetsTransformers) {
  const std::string folder = golden_path(GetParam().family);
  const Logits expected = read_npy(folder + GetParam().logits);
  const auto ids = read_tokens(folder + "/tokens.json");
  ModelOnBackend m(folder + GetParam().file, "reference");
  ASSERT_TRUE(m.ok());
  ASSERT_EQ(ids.size(), 75u);
  EXPECT_LT(max_difference(m.run(ids, 75), expected), 1e-4f) << "whole prompt";
  // 40 positions, then one by one, as a cache is used.
  m.make_cache(1);
  ModelOnBackend::Sequence s;
  s.ids = ids;
  s.pages = {0};
  m.step({&s}, {40});
  while (s.done < 75) m.step({&s}, {1});
  EXPECT_LT(max_difference(s.logits, expected), 1e-4f) << "prefill and decode";
}

std::string golden_name(const ::testing::TestParamInfo<Golden>& info) {
  return std::string(info.param.family) +
         (std::string(info.param.file).ends_with(".gguf") ? "_gguf" : "_safetensors");
}

INSTANTIATE_TEST_SUITE_P(Families, GoldenTest,
                         ::testing::Values(Golden{"llama_mlx", ""}, Golden{"llama", ""},
                                           Golden{"llama", "/model.gguf"}, Golden{"llama3", ""},
                                           Golden{"llama3", "/model.gguf"}, Golden{"qwen2", ""},
                                           Golden{"qwen2", "/model.gguf"}, Golden{"qwen3", ""},
                                           Golden{"qwen3", "/model.gguf"},
                                           Golden{"gemma3", "/model.safetensors"},
                                           Golden{"gemma3", "/model.gguf", "/ref_logits_gguf.npy"}),
                         golden_name);

}  // namespace
}  // namespace invar::testing
