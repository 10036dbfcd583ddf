// Engine::stats(): the numbers, against what the requests were.
#include <gtest/gtest.h>

#include <numeric>

#include "base/histogram.h"
#include "engine/fakes.h"

namespace invar {
namespace {

using testing::fake_engine;
using testing::FakeModel;
using testing::finish;

int64_t total(const HistogramData& data) {
  return std::accumulate(data.counts.begin(), data.counts.end(), int64_t{0});
}

GenerationRequest prompt_of(int num_tokens, int64_t max_tokens, int32_t first_id = 65) {
  GenerationRequest request;
  for (int i = 0; i < num_tokens; ++i) request.prompt_ids.push_back(first_id + i % 50);
  request.max_tokens = max_tokens;
  request.ignore_end = true;
  return request;
}

TEST(Histogram, EdgesBelongToTheBucketBelow) {
  Histogram histogram({1, 2, 5});
  for (const double value : {0.5, 1.0, 1.1, 5.0, 5.1, 100.0}) histogram.observe(value);
  const HistogramData data = histogram.data();
  EXPECT_EQ(data.counts, (std::vector<int64_t>{2, 1, 1, 2}));
  EXPECT_DOUBLE_EQ(data.sum, 112.7);
  EXPECT_EQ(count_edges(600), (std::vector<double>{1, 2, 5, 10, 20, 50, 100, 200, 500}));
}

TEST(EngineStats, CountsRequests) {
  const auto engine = fake_engine({.prefill_chunk = 64});
  EXPECT_EQ(engine->stats().num_steps, 0);
  testing::generate(*engine, prompt_of(100, 5));
  testing::generate(*engine, prompt_of(40, 1, 120));
  GenerationRequest warm_up = prompt_of(30, 3, 180);
  warm_up.count = false;
  testing::generate(*engine, warm_up);

  const EngineStats s = engine->stats();
  EXPECT_EQ(s.num_prompt_tokens, 140);
  EXPECT_EQ(s.num_cached_prompt_tokens, 0);
  EXPECT_EQ(s.num_looked_up_tokens, 140);
  EXPECT_EQ(s.num_generated_tokens, 6);
  EXPECT_EQ(s.max_context, 105);
  EXPECT_EQ(total(s.time_to_first_token), 2);
  EXPECT_EQ(total(s.time_between_tokens), 4);
  EXPECT_EQ(total(s.time_per_token), 1);  // one token has no gap
  for (const HistogramData* data : {&s.total_time, &s.queue_time, &s.prefill_time, &s.decode_time,
                                    &s.inference_time, &s.prompt_tokens, &s.generated_tokens})
    EXPECT_EQ(total(*data), 2);
  EXPECT_EQ(s.prompt_tokens.sum, 140);
  EXPECT_EQ(s.generated_tokens.sum, 6);
  EXPECT_EQ(s.max_tokens.sum, 6);
  // Steps are the engine's, whoever asked: 2 + 4, 1, and 1 + 2 of the warm-up.
  EXPECT_EQ(s.num_steps, 10);
  EXPECT_EQ(total(s.step_tokens), 10);
  EXPECT_EQ(s.step_tokens.sum, 104 + 40 + 32);
  EXPECT_EQ(total(s.step_seconds[static_cast<size_t>(StepKind::kPrefill)]), 4);
  EXPECT_EQ(total(s.step_seconds[static_cast<size_t>(StepKind::kDecode)]), 6);
  EXPECT_EQ(total(s.step_seconds[static_cast<size_t>(StepKind::kMixed)]), 0);
  EXPECT_GT(s.prefill_seconds, 0);
  EXPECT_GT(s.decode_seconds, 0);
  EXPECT_EQ(s.num_running + s.num_waiting + s.num_used_pages, 0);
  EXPECT_EQ(s.oldest_waiting_seconds, 0);
}

TEST(EngineStats, CountsWhatTheCacheGave) {
  const auto engine = fake_engine({.context = 1024});
  testing::generate(*engine, prompt_of(600, 2));
  const GenerationResult again = testing::generate(*engine, prompt_of(600, 2));
  EXPECT_GE(again.num_cached_tokens, 512);
  GenerationRequest without = prompt_of(600, 2);
  without.use_prefix_cache = false;
  testing::generate(*engine, without);
  const EngineStats s = engine->stats();
  EXPECT_EQ(s.num_cached_prompt_tokens, again.num_cached_tokens);
  EXPECT_EQ(s.num_prompt_tokens, 1800 - again.num_cached_tokens);
  EXPECT_EQ(s.num_looked_up_tokens, 1200);
  EXPECT_EQ(s.num_cached_pages, s.num_kept_pages);  // nobody uses them now
  EXPECT_GT(s.num_cached_pages, 0);
}

TEST(EngineStats, PreemptedPromptsCountOnce) {
  // Three replies that grow past what the pages hold together.
  const auto engine = fake_engine({.context = 1024, .num_pages = 4, .max_sequences = 3});
  std::vector<std::unique_ptr<TokenStream>> streams;
  for (int i = 0; i < 3; ++i) {
    GenerationRequest request = prompt_of(200, 300, 65 + 50 * i);
    request.use_prefix_cache = false;
    streams.push_back(*engine->submit(request));
  }
  for (const auto& stream : streams) finish(*stream);
  const EngineStats s = engine->stats();
  EXPECT_GT(s.num_preemptions, 0);
  EXPECT_EQ(s.num_prompt_tokens, 600);
  EXPECT_EQ(s.num_generated_tokens, 900);
  EXPECT_EQ(total(s.time_to_first_token), 3);
  EXPECT_EQ(total(s.time_between_tokens), 897);
  EXPECT_EQ(s.max_context, 500);
}

TEST(EngineStats, BadLogitsAreCountedAndTheEngineGoesOn) {
  const auto engine = fake_engine({}, [](FakeModel& model) { model.bad_logits_at = 31; });
  const GenerationResult bad = testing::generate(*engine, prompt_of(30, 10));
  EXPECT_EQ(bad.finish_reason, FinishReason::kError);
  EXPECT_EQ(bad.error.code, ErrorCode::kCorrupt);
  EXPECT_EQ(bad.token_ids.size(), 2u);  // of positions 29 and 30
  const GenerationResult good = testing::generate(*engine, prompt_of(10, 10));
  EXPECT_EQ(good.finish_reason, FinishReason::kLength);
  EXPECT_EQ(engine->stats().num_bad_logits, 1);
}

}  // namespace
}  // namespace invar
