// The exactness contract through the whole engine, on models with real arithmetic: tiny random ones
// of every family, and the three real files. Chunk size, threads, instruction set, number of
// sequences, company and preemption never change a reply's token_sha.
#include <gtest/gtest.h>

#include <cstdlib>
#include <random>

#include "base/file.h"
#include "engine/fakes.h"
#include "weights/checkpoint.h"

namespace invar {
namespace {

using namespace testing;

std::string real_model(const std::string& name) {
  const char* models = std::getenv("INVAR_MODELS");
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const std::string folder = models  ? models
                             : cache ? std::string(cache) + "/invar/models"
                                     : std::string(home ? home : "") + "/.cache/invar/models";
  const std::string path = folder + "/" + name;
  EXPECT_TRUE(file_exists(path)) << path << " is missing; run tools/fetch_models.py";
  return path;
}

// Id n is the byte n + 32: a vocabulary for models that have none.
class IdTokenizer : public ByteTokenizer {
 public:
  explicit IdTokenizer(int32_t size) : size_(size) { end_ids = {5}; }
  int32_t vocab_size() const override { return size_; }
  TokenKind token_kind(int32_t id) const override {
    return id == kTurn ? TokenKind::kSpecial : TokenKind::kNormal;
  }
  static constexpr int32_t kTurn = 1;  // begins a turn, as chat templates have it

 private:
  int32_t size_;
};

struct Setting {
  int num_threads = 1, max_sequences = 1, prefill_chunk = 1 << 16, num_pages = 0;
  std::string isa = {};
};

std::unique_ptr<Engine> tiny_engine(const std::string& family, const Setting& setting,
                                    int64_t context) {
  EngineParts parts;
  BackendOptions options;
  options.num_threads = setting.num_threads;
  options.isa = setting.isa;
  auto backend = make_backend("cpu", options);
  INVAR_CHECK(backend.ok(), "%s", backend.error().message.c_str());
  parts.backend = *std::move(backend);
  auto checkpoint = Checkpoint::open(std::string(INVAR_TEST_DATA) + "/golden/models/" + family);
  INVAR_CHECK(checkpoint.ok(), "%s", checkpoint.error().message.c_str());
  auto model = load_model(**checkpoint, *parts.backend);
  INVAR_CHECK(model.ok(), "%s", model.error().message.c_str());
  parts.model = *std::move(model);
  parts.tokenizer = std::make_unique<IdTokenizer>(parts.model->info().vocab_size);
  parts.context = context;
  const int one_context = static_cast<int>((context + kPagePositions - 1) / kPagePositions);
  parts.num_pages = one_context + setting.num_pages;
  parts.max_sequences = setting.max_sequences;
  parts.prefill_chunk = setting.prefill_chunk;
  auto engine = make_engine(std::move(parts));
  INVAR_CHECK(engine.ok(), "%s", engine.error().message.c_str());
  return *std::move(engine);
}

// Submits all at once, reads them one after the other.
std::vector<GenerationResult> run_together(Engine& engine,
                                           const std::vector<GenerationRequest>& requests) {
  std::vector<std::unique_ptr<TokenStream>> streams;
  for (const GenerationRequest& request : requests) {
    auto stream = engine.submit(request);
    EXPECT_TRUE(stream.ok()) << (stream.ok() ? "" : stream.error().message);
    if (stream.ok()) streams.push_back(*std::move(stream));
  }
  std::vector<GenerationResult> results;
  for (const auto& stream : streams) results.push_back(finish(*stream));
  return results;
}

std::vector<std::string> run_alone(Engine& engine, const std::vector<GenerationRequest>& requests) {
  std::vector<std::string> shas;
  for (const GenerationRequest& request : requests)
    shas.push_back(generate(engine, request).token_sha);
  return shas;
}

class TinyModels : public ::testing::TestWithParam<const char*> {};

TEST_P(TinyModels, TokensDoNotDependOnTheSetting) {
  constexpr int64_t kContext = 512;
  std::mt19937 rng(17);
  std::vector<GenerationRequest> requests(5);
  for (GenerationRequest& request : requests) {
    const size_t length = rng() % 3 == 0 ? 200 + rng() % 200 : 1 + rng() % 80;
    for (size_t i = 0; i < length; ++i)
      request.prompt_ids.push_back(static_cast<int32_t>(rng() % 96));
    request.max_tokens = 5 + static_cast<int64_t>(rng() % 60);
    request.ignore_end = rng() % 4 != 0;
    request.sampling.seed = rng();
    request.sampling.temperature = rng() % 3 == 0 ? 0.0f : 0.8f;
    if (rng() % 2 == 0) request.sampling.top_p = 0.9f;
  }
  const auto solo = tiny_engine(GetParam(), {}, kContext);
  const std::vector<std::string> expected = run_alone(*solo, requests);
  for (int round = 0; round < 3; ++round) {
    Setting setting;
    setting.num_threads = 1 + static_cast<int>(rng() % 2);
    setting.max_sequences = 1 + static_cast<int>(rng() % 7);
    setting.prefill_chunk = 1 + static_cast<int>(round == 0 ? rng() % 20 : rng() % 200);
    setting.num_pages = static_cast<int>(rng() % 4);
    if (round == 1) setting.isa = "portable";
    const auto engine = tiny_engine(GetParam(), setting, kContext);
    const std::vector<GenerationResult> results = run_together(*engine, requests);
    ASSERT_EQ(results.size(), expected.size());
    for (size_t i = 0; i < results.size(); ++i)
      EXPECT_EQ(results[i].token_sha, expected[i])
          << "request " << i << ", threads " << setting.num_threads << ", sequences "
          << setting.max_sequences << ", chunk " << setting.prefill_chunk << ", pages "
          << setting.num_pages << " beyond one context";
  }
}

// Conversations of which every turn drops the first tokens of the replies before (their thoughts)
// and of which two have the same system message: what the cache has, pages and states of recurrent
// layers, changes no reply.
TEST_P(TinyModels, CachedRepliesEqualColdOnes) {
  std::mt19937 rng(23);
  const auto words = [&](size_t count) {
    std::vector<int32_t> ids = {IdTokenizer::kTurn};
    for (size_t i = 0; i < count; ++i) ids.push_back(6 + static_cast<int32_t>(rng() % 90));
    return ids;
  };
  const auto append = [](std::vector<int32_t>& to, std::span<const int32_t> ids) {
    to.insert(to.end(), ids.begin(), ids.end());
  };
  const std::vector<int32_t> system = words(150);
  Setting setting;
  setting.max_sequences = 2;
  setting.prefill_chunk = 100;
  setting.num_pages = 40;
  const auto engine = tiny_engine(GetParam(), setting, 1024);
  for (int conversation = 0; conversation < 2; ++conversation) {
    std::vector<int32_t> history = system;
    for (int turn = 0; turn < 4; ++turn) {
      append(history, words(40 + rng() % 100));
      GenerationRequest request;
      request.prompt_ids = history;
      append(request.prompt_ids, words(3));
      request.max_tokens = 20;
      request.ignore_end = true;
      request.sampling.temperature = 0.8f;
      request.sampling.seed = rng();
      request.use_prefix_cache = false;
      const GenerationResult cold = generate(*engine, request);
      request.use_prefix_cache = true;
      const GenerationResult cached = generate(*engine, request);
      EXPECT_EQ(cached.token_ids, cold.token_ids) << conversation << ", turn " << turn;
      EXPECT_EQ(cold.num_cached_tokens, 0);
      // All of the turn before, or the system message.
      if (turn > 0) {
        EXPECT_GT(cached.num_cached_tokens, 190) << conversation << ", turn " << turn;
      } else if (conversation > 0) {
        EXPECT_GE(cached.num_cached_tokens, 151);
      }
      history.push_back(IdTokenizer::kTurn);
      append(history, std::span(cold.token_ids).subspan(5));
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Families, TinyModels,
                         ::testing::Values("llama", "llama3", "qwen2", "qwen3", "gemma3",
                                           "qwen3_moe", "qwen3_5", "qwen3_5_moe_tied", "qwen3_next",
                                           "nemotron_h", "nemotron_h_latent"),
                         [](const auto& tested) { return std::string(tested.param); });

class RealModels : public ::testing::TestWithParam<const char*> {};

TEST_P(RealModels, TokensDoNotDependOnTheSetting) {
  const std::string path = real_model(GetParam());
  if (!file_exists(path)) return;  // has failed above
  const auto open = [&](const Setting& setting) {
    EngineOptions options;
    options.model = path;
    options.context = 512;
    options.num_threads = setting.num_threads;
    options.max_sequences = setting.max_sequences;
    options.prefill_chunk = setting.prefill_chunk;
    auto engine = Engine::open(options);
    INVAR_CHECK(engine.ok(), "%s", engine.error().message.c_str());
    return *std::move(engine);
  };
  std::vector<GenerationRequest> requests(3);
  requests[0].prompt = "The capital of France is";
  requests[1].prompt = "def fibonacci(n):\n    \"\"\"Return the n-th Fibonacci number.\"\"\"\n";
  requests[2].prompt = "One two three four five six seven eight nine ten. ";
  for (GenerationRequest& request : requests) {
    request.max_tokens = 6;
    request.sampling.seed = 7;
  }
  requests[1].sampling.temperature = 0.8f;
  std::vector<std::string> expected;
  {
    const auto engine = open({});
    expected = run_alone(*engine, requests);
  }
  for (const Setting& setting : {Setting{2, 3, 512}, Setting{1, 2, 5}}) {
    // Loading the larger files is what takes the time.
    if (setting.num_threads == 1 && std::string_view(GetParam()).substr(0, 6) != "smollm") break;
    const auto engine = open(setting);
    const std::vector<GenerationResult> results = run_together(*engine, requests);
    for (size_t i = 0; i < results.size(); ++i) {
      EXPECT_EQ(results[i].token_sha, expected[i]) << "request " << i << " " << results[i].text;
      EXPECT_FALSE(results[i].text.empty());
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Files, RealModels,
                         ::testing::Values("smollm2-135m-instruct-q4_1.gguf",
                                           "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                                           "gemma-3-270m-q4_k_m.gguf"),
                         [](const auto& tested) {
                           const std::string name = tested.param;
                           return name.substr(0, name.find_first_of("-2"));
                         });

}  // namespace
}  // namespace invar
