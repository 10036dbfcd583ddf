// The disk tier of the prefix cache: an engine that was closed goes on where it was, with the same
// tokens, and files that were changed meanwhile change nothing.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <random>

#include "base/log.h"
#include "cache/temporary_folder.h"
#include "engine/fakes.h"
#include "invar/invar.h"
#include "models/harness.h"

namespace invar {
namespace {

using namespace testing;
namespace fs = std::filesystem;

// Texts that begin alike and part at many places, so that tails are copied, pages loaded and pages
// evicted in the same steps.
GenerationRequest text_of(int k) {
  GenerationRequest request;
  const size_t cuts[] = {200, 240, 300, 520, 560, 700};
  const size_t cut = cuts[static_cast<size_t>(k) % 6];
  for (size_t i = 0; i < cut + 150; ++i)
    request.prompt_ids.push_back(i < cut ? static_cast<int32_t>(i * 7 % 250) : k);
  request.max_tokens = 5;
  request.ignore_end = true;
  request.sampling.temperature = 1;
  request.sampling.seed = static_cast<uint64_t>(k);
  return request;
}

TEST(DiskPages, ATightPoolChangesNoToken) {
  constexpr int kTexts = 18;
  std::vector<std::vector<int32_t>> expected;
  {
    auto engine = fake_engine({.context = 1024});
    for (int k = 0; k < kTexts; ++k) {
      GenerationRequest request = text_of(k);
      request.use_prefix_cache = false;
      expected.push_back(generate(*engine, request).token_ids);
    }
  }
  const TemporaryFolder temporary;
  std::mt19937 rng(11);
  int64_t num_loaded = 0, num_preempted = 0;
  for (int start = 0; start < 12; ++start) {
    EngineParts parts = fake_parts(
        {.context = 1024, .num_pages = 4 + start % 3, .max_sequences = 5, .prefill_chunk = 900});
    parts.backend = std::make_unique<FakePagesBackend>();
    parts.prefix_cache_pages = start % 2 == 0 ? -1 : 2;
    PageStoreOptions options;
    options.folder = temporary.path() + "/pages";
    options.max_bytes = 40 * FakePagesBackend::kPageBytes;
    options.identity = "fake";
    options.page_bytes = FakePagesBackend::kPageBytes;
    parts.page_store = PageStore::open(options);
    ASSERT_NE(parts.page_store, nullptr);
    PageStore& store = *parts.page_store;
    auto engine = make_engine(std::move(parts));
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    for (int round = 0; round < 4; ++round) {
      std::vector<std::pair<int, std::unique_ptr<TokenStream>>> streams;
      for (int i = 0; i < 8; ++i) {
        const int k = static_cast<int>(rng() % kTexts);
        auto stream = (*engine)->submit(text_of(k));
        ASSERT_TRUE(stream.ok()) << stream.error().message;
        streams.emplace_back(k, *std::move(stream));
      }
      for (auto& [k, stream] : streams) {
        const GenerationResult result = finish(*stream);
        ASSERT_EQ(result.token_ids, expected[static_cast<size_t>(k)]) << "text " << k;
      }
      store.wait();
    }
    num_loaded += store.counts().num_loaded;
    num_preempted += engine_gauges(**engine).num_preemptions;
  }
  EXPECT_GT(num_loaded, 20);
  RecordProperty("loaded", std::to_string(num_loaded));
  RecordProperty("preempted", std::to_string(num_preempted));
}

TEST(DiskPages, NeedAPrefixCache) {
  EngineOptions options;
  options.model = "no such model";
  options.prefix_cache_folder = "no such folder";
  options.prefix_cache_bytes = 0;
  const auto refused = Engine::open(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("prefix_cache_folder"), std::string::npos);
}

GenerationResult reply(Engine& engine, const std::string& salt = {}) {
  GenerationRequest request;
  for (int i = 0; i < 480; ++i) request.prompt_ids.push_back(1000 + i * 31 % 1777);
  request.max_tokens = 12;
  request.sampling.temperature = 1;
  request.sampling.seed = 5;
  request.ignore_end = true;
  request.cache_salt = salt;
  auto stream = engine.submit(request);
  INVAR_CHECK(stream.ok(), "%s", stream.error().message.c_str());
  while ((*stream)->next()) {
  }
  return (*stream)->result();
}

TEST(RealDiskPages, AConversationGoesOnAfterARestart) {
  const TemporaryFolder temporary;
  EngineOptions options;
  options.model = real_model_path("smollm2-135m-instruct-q4_1.gguf");
  options.packed_cache = temporary.path() + "/packed";
  options.packed_cache_wait = true;
  options.context = 512;
  options.num_threads = 1;
  const auto open = [&] {
    auto engine = Engine::open(options);
    INVAR_CHECK(engine.ok(), "%s", engine.error().message.c_str());
    return *std::move(engine);
  };
  const GenerationResult expected = reply(*open());
  EXPECT_EQ(reply(*open()).num_cached_tokens, 0);

  options.prefix_cache_folder = temporary.path() + "/pages";
  EXPECT_EQ(reply(*open()).token_ids, expected.token_ids);  // and writes when it is closed
  const GenerationResult again = reply(*open());
  EXPECT_EQ(again.num_cached_tokens, 256);
  EXPECT_EQ(again.token_ids, expected.token_ids);
  EXPECT_EQ(reply(*open(), "another salt").num_cached_tokens, 0);

  set_log_level(LogLevel::kError);
  for (const auto& entry : fs::directory_iterator(options.prefix_cache_folder)) {
    std::fstream file(entry.path(), std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(2000);
    file.write("damaged", 7);
  }
  const GenerationResult damaged = reply(*open());
  EXPECT_EQ(damaged.num_cached_tokens, 0);
  EXPECT_EQ(damaged.token_ids, expected.token_ids);
  set_log_level(LogLevel::kWarning);

  options.activation_bits = 12;  // another arithmetic: other pages
  EXPECT_EQ(reply(*open()).num_cached_tokens, 0);
  options.activation_bits = 8;
  options.backend = "reference";
  const auto refused = Engine::open(options);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("prefix_cache_folder"), std::string::npos);
}

}  // namespace
}  // namespace invar
