// Chunk size, company, order of arrival, preemption, cancelled neighbours and slow readers change
// when a token comes, never which: every reply's token_sha equals that of the request run alone.
#include <gtest/gtest.h>

#include <random>
#include <thread>

#include "engine/fakes.h"

namespace invar {
namespace {

using namespace testing;

// Half of the prompts have a beginning of four texts, cut somewhere; <bos> stands between turns.
GenerationRequest random_request(std::mt19937& rng) {
  GenerationRequest request;
  if (rng() % 2 == 0) {
    std::mt19937 text(static_cast<unsigned>(rng() % 4));
    const size_t length = rng() % 700;
    for (size_t i = 0; i < length; ++i)
      request.prompt_ids.push_back(text() % 60 == 0 ? 256 : static_cast<int32_t>(text() % 256));
  }
  const size_t length = rng() % 4 == 0 ? 1 + rng() % 600 : 1 + rng() % 60;
  for (size_t i = 0; i < length; ++i)
    request.prompt_ids.push_back(static_cast<int32_t>(rng() % 256));
  request.max_tokens = 1 + static_cast<int64_t>(rng() % (rng() % 3 == 0 ? 700 : 60));
  request.ignore_end = rng() % 4 != 0;
  request.sampling.seed = rng();
  request.sampling.temperature = rng() % 3 == 0 ? 0.0f : 1.0f;
  if (rng() % 3 == 0) request.sampling.top_k = 10;
  if (rng() % 3 == 0) request.sampling.top_p = 0.9f;
  if (rng() % 3 == 0) request.sampling.repetition_penalty = 1.2f;
  if (rng() % 3 == 0) request.sampling.frequency_penalty = 0.3f;
  if (rng() % 4 == 0) request.stop = {"ab", "q"};
  request.use_prefix_cache = rng() % 6 != 0;
  if (rng() % 5 == 0) request.cache_salt = "other";
  return request;
}

struct Expected {
  GenerationRequest request;
  std::string token_sha, text;
  FinishReason finish_reason;
};

std::vector<Expected> run_alone(std::mt19937& rng, size_t count, bool is_recurrent = false) {
  std::vector<Expected> all;
  for (size_t i = 0; i < count; ++i) {
    GenerationRequest request = random_request(rng);
    auto engine =
        fake_engine({.max_sequences = 1, .prefill_chunk = 100000, .is_recurrent = is_recurrent});
    const GenerationResult result = generate(*engine, request);
    all.push_back({std::move(request), result.token_sha, result.text, result.finish_reason});
  }
  return all;
}

void expect_same(const GenerationResult& result, const Expected& expected) {
  EXPECT_EQ(result.token_sha, expected.token_sha);
  EXPECT_EQ(result.text, expected.text);
  EXPECT_EQ(result.finish_reason, expected.finish_reason);
}

void check_random_company(bool is_recurrent) {
  std::mt19937 rng(1);
  const std::vector<Expected> all = run_alone(rng, 40, is_recurrent);
  int64_t num_preemptions = 0, num_cached = 0;
  for (int round = 0; round < 30; ++round) {
    FakeOptions options;
    options.max_sequences = 1 + static_cast<int>(rng() % 8);
    options.prefill_chunk =
        rng() % 3 == 0 ? 1 + static_cast<int>(rng() % 7) : 1 + static_cast<int>(rng() % 400);
    options.is_recurrent = is_recurrent;
    options.num_state_snapshots = static_cast<int>(rng() % 10);
    options.context = 2048;
    options.num_pages = 8 + static_cast<int>(rng() % 3);  // one full context, hardly more
    auto engine = fake_engine(options);
    std::vector<std::pair<size_t, std::unique_ptr<TokenStream>>> streams;
    std::vector<std::unique_ptr<TokenStream>> dropped;
    for (int i = 0; i < 12; ++i) {
      const size_t which = rng() % all.size();
      auto stream = engine->submit(all[which].request);
      ASSERT_TRUE(stream.ok());
      if (rng() % 5 == 0) {
        dropped.push_back(*std::move(stream));
      } else {
        streams.emplace_back(which, *std::move(stream));
      }
      if (rng() % 4 == 0 && !streams.empty()) streams.back().second->next();
      if (rng() % 3 == 0 && !dropped.empty()) dropped.pop_back();
    }
    std::shuffle(streams.begin(), streams.end(), rng);
    for (auto& [which, stream] : streams) {
      // An event may have been read above; the result holds all of it.
      const GenerationResult result = finish(*stream);
      expect_same(result, all[which]);
      num_cached += result.num_cached_tokens;
    }
    dropped.clear();
    for (int i = 0; i < 5000 && engine_gauges(*engine).num_requests > 0; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    EXPECT_EQ(engine_gauges(*engine).num_used_pages, 0);
    EXPECT_EQ(engine_gauges(*engine).num_running_states, 0);
    num_preemptions += engine_gauges(*engine).num_preemptions;
  }
  EXPECT_GT(num_preemptions, 0) << "the pools were too large to test preemption";
  EXPECT_GT(num_cached, 1000) << "nothing was found in the cache";
}

TEST(Invariance, ChunksOrderCompanyAndPreemption) { check_random_company(false); }
TEST(Invariance, ChunksOrderCompanyAndPreemptionWithStates) { check_random_company(true); }

TEST(Invariance, RequestsFromManyThreads) {
  std::mt19937 rng(2);
  const std::vector<Expected> all = run_alone(rng, 16);
  auto engine = fake_engine({.num_pages = 10, .max_sequences = 3, .prefill_chunk = 37});
  std::vector<std::thread> threads;
  for (unsigned t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 own(t);
      for (int i = 0; i < 8; ++i) {
        const Expected& expected = all[own() % all.size()];
        auto stream = engine->submit(expected.request);
        if (own() % 4 == 0) continue;  // dropped at once
        expect_same(finish(**stream), expected);
        if (i == 5) {
          int64_t rows = 0;
          EXPECT_TRUE(
              engine->score(expected.request.prompt_ids, [&](int64_t, auto) { return ++rows < 50; })
                  .ok());
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

// The bound on the time between two tokens: a step never has more rows than this.
TEST(Invariance, StepsAreBounded) {
  const FakeModel* model = nullptr;
  FakeOptions options{.context = 4096, .num_pages = 64, .max_sequences = 3, .prefill_chunk = 32};
  auto engine = fake_engine(options, [&](FakeModel& m) { model = &m; });
  std::mt19937 rng(3);
  std::vector<std::unique_ptr<TokenStream>> streams;
  for (int i = 0; i < 8; ++i) {
    GenerationRequest request = random_request(rng);
    request.prompt_ids.resize(1000, 7);
    streams.push_back(*engine->submit(request));
  }
  for (auto& stream : streams) finish(*stream);
  engine_gauges(*engine);
  const std::vector<int64_t> rows = model->rows_per_step;  // idle by now
  for (const int64_t n : rows) EXPECT_LE(n, 32 + 3);
  EXPECT_GE(rows.size(), 8 * 1000 / 32u);
}

}  // namespace
}  // namespace invar
