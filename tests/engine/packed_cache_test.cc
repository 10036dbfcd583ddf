// Weights out of the packed cache are the packed weights: same logits, bit for bit, whichever
// instruction set and arithmetic wrote the file and reads it. The cache by itself: tests/cache.
#include "cache/packed_test_util.h"
#include "invar/invar.h"
#include "models/harness.h"

namespace invar {
namespace {

using namespace testing;
using State = DiskPackedCache::State;

// The model at `path`, once as packed now and once through the cache.
State expect_same_logits(const std::string& path, const BackendOptions& options,
                         const std::string& folder) {
  ModelOnBackend m(path, "cpu", options);
  if (!m.ok()) return State::kNotWritten;
  std::vector<int32_t> ids;
  for (int i = 0; i < 20; ++i)
    ids.push_back((i * 37 + 11) % std::min(m.model->info().vocab_size, 4096));
  const Logits plain = m.run(ids, 8);

  PackedCacheOptions cache_options;
  cache_options.folder = folder;
  cache_options.max_bytes = uint64_t{1} << 30;
  cache_options.backend = "cpu";
  cache_options.layout = m.backend->info().packed_layout;
  cache_options.fingerprint = m.checkpoint->fingerprint;
  cache_options.source = {m.checkpoint->files, m.checkpoint->states};
  EXPECT_FALSE(cache_options.layout.empty());
  const auto cache = DiskPackedCache::open(cache_options);
  EXPECT_NE(cache, nullptr);
  auto loaded = load_model(*m.checkpoint, *m.backend, {}, cache.get());
  EXPECT_TRUE(loaded.ok());
  EXPECT_EQ((*loaded)->info().packed_bytes, m.model->info().packed_bytes);
  m.model = *std::move(loaded);
  cache->finish();
  cache->wait();
  const Logits cached = m.run(ids, 8);
  EXPECT_EQ(plain.size(), cached.size());
  for (size_t t = 0; t < std::min(plain.size(), cached.size()); ++t)
    EXPECT_EQ(std::memcmp(plain[t].data(), cached[t].data(), plain[t].size() * sizeof(float)), 0)
        << path << " position " << t;
  return cache->state();
}

class PackedModelTest : public ::testing::TestWithParam<const char*> {};

TEST_P(PackedModelTest, LogitsAreThoseOfWeightsPackedNow) {
  const TemporaryFolder temporary;
  const std::string path = golden_path(GetParam());
  BackendOptions options;
  EXPECT_EQ(expect_same_logits(path, options, temporary.path()), State::kWritten);
  EXPECT_EQ(expect_same_logits(path, options, temporary.path()), State::kComplete);
  // The same file for other instruction sets and the other arithmetic.
  options.isa = "portable";
  EXPECT_EQ(expect_same_logits(path, options, temporary.path()), State::kComplete);
  options.activation_bits = 12;
  EXPECT_EQ(expect_same_logits(path, options, temporary.path()), State::kComplete);
  EXPECT_EQ(names_in(temporary.path()).size(), 1u);
}

// Heads interleaved, a scaled rope, MLX groups, biases, head norms and a tied head; rows in another
// order than the file's, experts in each layout, routers.
INSTANTIATE_TEST_SUITE_P(Families, PackedModelTest,
                         ::testing::Values("llama/model.gguf", "llama3/model.gguf", "llama_mlx",
                                           "qwen2/model.gguf", "qwen3/model.gguf",
                                           "gemma3/model.gguf", "qwen3_5", "qwen3_next",
                                           "qwen3_5_moe/model.gguf", "nemotron_h_latent"));

TEST(RealPackedEngine, SecondStartReadsTheCacheAndRepliesTheSame) {
  const TemporaryFolder temporary;
  EngineOptions options;
  options.model = real_model_path("smollm2-135m-instruct-q4_1.gguf");
  options.context = 512;
  options.packed_cache = temporary.path("new/packed");
  options.packed_cache_wait = true;
  std::vector<std::string> packing, replies;
  const auto start = [&] {
    auto engine = Engine::open(options);
    ASSERT_TRUE(engine.ok()) << engine.error().message;
    packing.push_back((*engine)->description().packing);
    GenerationRequest request;
    request.prompt = "The three rivers are";
    request.max_tokens = 12;
    auto stream = (*engine)->submit(request);
    ASSERT_TRUE(stream.ok());
    while ((*stream)->next()) {
    }
    replies.push_back((*stream)->result().token_sha);
  };
  start();
  start();
  options.packed_cache = options.model;  // no folder: said in a log line, and nothing else
  start();
  options.packed_cache = "";
  start();
  EXPECT_EQ(packing,
            (std::vector<std::string>{"packed now, written to the packed cache",
                                      "read from the packed cache", "packed now", "packed now"}));
  EXPECT_EQ(replies, std::vector<std::string>(4, replies.at(0)));
}

}  // namespace
}  // namespace invar
