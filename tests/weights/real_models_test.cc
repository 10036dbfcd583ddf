// The three real GGUF files: open fast, list what they should. Expectations were read with gguf-py.
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <map>

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
  EXPECT_LT(seconds.count(), 4.0);  // 1 s on the development machine, CI is up to 4x slower
  return std::move(*checkpoint);
}

std::map<std::string, int> format_counts(const Checkpoint& checkpoint) {
  std::map<std::string, int> counts;
  for (const TensorInfo& tensor : checkpoint.tensors()) ++counts[format_name(tensor.matrix.format)];
  return counts;
}

TEST(RealModelsTest, SmolLM2) {
  const auto model = open_model("smollm2-135m-instruct-q4_1.gguf");
  ASSERT_NE(model, nullptr);
  EXPECT_EQ(model->container, Container::kGguf);
  EXPECT_EQ(model->metadata.required<std::string>("general.architecture").value(), "llama");
  EXPECT_EQ(model->metadata.required<int>("llama.block_count").value(), 30);
  ASSERT_TRUE(model->gguf_vocabulary.has_value());
  EXPECT_EQ(model->gguf_vocabulary->tokens.size(), 49152u);
  EXPECT_EQ(model->gguf_vocabulary->model, "gpt2");
  ASSERT_EQ(model->chat_templates.size(), 1u);
  EXPECT_EQ(model->chat_templates[0].first, "default");
  const TensorInfo* embedding = model->find("token_embd.weight");
  ASSERT_NE(embedding, nullptr);
  EXPECT_EQ(embedding->shape, (std::vector<int64_t>{49152, 576}));
  EXPECT_EQ(model->tensors().size(), 272u);
  EXPECT_EQ(model->find("no.such"), nullptr);
  std::vector<float> row(576);
  dequantize_row(embedding->matrix, 49151, row.data());
  for (const float x : row) EXPECT_TRUE(std::isfinite(x));
  for (const auto& [name, count] : format_counts(*model))
    std::printf("%s %d\n", name.c_str(), count);
}

}  // namespace
}  // namespace invar
