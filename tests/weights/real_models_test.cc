// The three real GGUF files: open fast, list what they should, and hold the values that gguf-py
// reads (tests/golden/weights/real_rows.tsv, made by tools/make_weight_rows.py).
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "base/file.h"
#include "weights/checkpoint.h"

namespace invar {
namespace {

std::string models_folder() {
  if (const char* folder = std::getenv("INVAR_MODELS")) return folder;
  if (const char* cache = std::getenv("XDG_CACHE_HOME"))
    return std::string(cache) + "/invar/models";
  const char* home = std::getenv("HOME");
  return std::string(home != nullptr ? home : "") + "/.cache/invar/models";
}

std::unique_ptr<Checkpoint> open_model(const std::string& name) {
  const std::string path = models_folder() + "/" + name;
  if (!file_exists(path)) {
    ADD_FAILURE() << path << ": no such file; run tools/fetch_models.py";
    return nullptr;
  }
  const auto start = std::chrono::steady_clock::now();
  auto checkpoint = Checkpoint::open(path);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  if (!checkpoint) {
    ADD_FAILURE() << checkpoint.error().message;
    return nullptr;
  }
  // Under 1 s on the development machine; CI machines are up to 4x slower.
  EXPECT_LT(seconds.count(), 4.0) << name;
  return std::move(*checkpoint);
}

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream in(text);
  for (std::string part; std::getline(in, part, separator);) parts.push_back(part);
  return parts;
}

TEST(RealModelsTest, TensorsAndValuesAsGgufPyReadsThem) {
  std::ifstream in(INVAR_TEST_DATA "/golden/weights/real_rows.tsv");
  ASSERT_TRUE(in.good());
  std::string opened;
  std::unique_ptr<Checkpoint> model;
  int num_rows = 0;
  for (std::string line; std::getline(in, line);) {
    const std::vector<std::string> f = split(line, '\t');
    if (opened != f[1]) model = open_model(opened = f[1]);
    if (model == nullptr) continue;
    if (f[0] == "tensors") {
      std::map<std::string, int> counts;
      for (const TensorInfo& tensor : model->tensors()) ++counts[format_name(tensor.matrix.format)];
      std::string listed;
      for (const auto& [format, count] : counts)
        listed += (listed.empty() ? "" : ",") + format + "=" + std::to_string(count);
      EXPECT_EQ(model->tensors().size(), std::stoul(f[2]));
      EXPECT_EQ(listed, f[3]);
      continue;
    }
    const TensorInfo* tensor = model->find(f[2]);
    ASSERT_NE(tensor, nullptr) << f[2];
    std::vector<int64_t> shape;
    for (const std::string& dim : split(f[3], ',')) shape.push_back(std::stoll(dim));
    EXPECT_EQ(tensor->shape, shape) << f[2];
    EXPECT_EQ(format_name(tensor->matrix.format), f[4]) << f[2];
    std::vector<float> row(static_cast<size_t>(tensor->matrix.num_cols));
    dequantize_row(tensor->matrix, std::stoll(f[5]), row.data());
    double sum = 0, abs_sum = 0;
    for (const float x : row) sum += x, abs_sum += std::abs(double{x});
    const double expected_abs = std::stod(f[7]);
    EXPECT_NEAR(sum, std::stod(f[6]), 1e-6 * expected_abs) << f[2];
    EXPECT_NEAR(abs_sum, expected_abs, 1e-6 * expected_abs) << f[2];
    const std::vector<std::string> first = split(f[8], ',');
    for (size_t i = 0; i < first.size(); ++i) {
      const double expected = std::stod(first[i]);
      EXPECT_NEAR(double{row[i]}, expected, 1e-6 * std::abs(expected)) << f[2] << " column " << i;
    }
    ++num_rows;
  }
  EXPECT_EQ(num_rows, 3 + 5 + 5);
}

TEST(RealModelsTest, MetadataVocabularyAndTemplates) {
  struct Expected {
    const char *file, *architecture, *model;
    int num_layers;
    size_t num_tokens, num_templates;
  };
  const Expected all[] = {
      {"smollm2-135m-instruct-q4_1.gguf", "llama", "gpt2", 30, 49152, 1},
      {"gemma-3-270m-q4_k_m.gguf", "gemma3", "llama", 18, 262144, 0},
      {"qwen2.5-coder-0.5b-instruct-q4_k_m.gguf", "qwen2", "gpt2", 24, 151936, 1},
  };
  for (const Expected& e : all) {
    const auto model = open_model(e.file);
    if (model == nullptr) continue;
    EXPECT_EQ(model->metadata.required<std::string>("general.architecture").value(),
              e.architecture);
    const std::string key = std::string(e.architecture) + ".block_count";
    EXPECT_EQ(model->metadata.required<int>(key).value(), e.num_layers);
    ASSERT_TRUE(model->gguf_vocabulary.has_value());
    EXPECT_EQ(model->gguf_vocabulary->model, e.model);
    EXPECT_EQ(model->gguf_vocabulary->tokens.size(), e.num_tokens);
    EXPECT_EQ(model->gguf_vocabulary->token_types.size(), e.num_tokens);
    EXPECT_EQ(model->chat_templates.size(), e.num_templates);
    EXPECT_EQ(model->fingerprint.size(), 64u);
  }
}

}  // namespace
}  // namespace invar
