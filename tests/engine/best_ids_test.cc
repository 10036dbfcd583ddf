// Backends that find the largest logit themselves (Backend::want_best): the tokens are those of one
// that does not, and nobody looks at logits that are not there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <future>

#include "engine/fakes.h"

namespace invar {
namespace {

using namespace testing;

// Finds the ids that are wanted, and makes the rest of their rows unusable.
class BestBackend : public FakeBackend {
 public:
  BestBackend(int64_t& num_found, std::shared_future<void> start)
      : num_found_(num_found), start_(std::move(start)) {}
  void begin_step() override {
    FakeBackend::begin_step();
    start_.wait();
    wanted_.clear();
    best_.clear();
  }
  Tensor logits_memory(Arena& arena, int64_t num_rows, int64_t num_cols) override {
    return logits_ = arena.rows(num_rows, num_cols);
  }
  void want_best(std::span<const uint8_t> rows, int32_t num_ids,
                 std::span<const int32_t> never) override {
    wanted_.assign(rows.begin(), rows.end());
    num_ids_ = num_ids;
    never_ = never;
  }
  std::span<const int32_t> best_ids() const override { return best_; }
  void synchronize() override {
    FakeBackend::synchronize();
    best_.assign(wanted_.size(), -1);
    for (size_t i = 0; i < wanted_.size(); ++i) {
      if (wanted_[i] == 0) continue;
      float* row = logits_.row(static_cast<int64_t>(i));
      if (std::any_of(row, row + logits_.num_cols, [](float x) { return !std::isfinite(x); }))
        continue;
      for (int32_t id = 0; id < num_ids_; ++id)
        if (!std::binary_search(never_.begin(), never_.end(), id) &&
            (best_[i] < 0 || row[id] > row[best_[i]]))
          best_[i] = id;
      std::fill_n(row, logits_.num_cols, std::nanf(""));
      ++num_found_;
    }
  }

 private:
  int64_t& num_found_;
  const std::shared_future<void> start_;
  Tensor logits_;
  std::vector<uint8_t> wanted_;
  std::vector<int32_t> best_;
  int32_t num_ids_ = 0;
  std::span<const int32_t> never_;
};

// Reasoning from the beginning, until the byte 'e'.
class OpenParser : public ReplyParser {
 public:
  std::vector<ReplyPart> push(std::string_view text) override {
    std::vector<ReplyPart> parts;
    for (const char c : text) {
      parts.push_back({inside_ ? ReplyPart::Kind::kReasoning : ReplyPart::Kind::kContent,
                       std::string(1, c), num_bytes_++});
      if (c == 'e') inside_ = false;
    }
    return parts;
  }
  std::vector<ReplyPart> finish() override { return {}; }
  bool in_reasoning() const override { return inside_; }

 private:
  bool inside_ = true;
  size_t num_bytes_ = 0;
};

std::vector<GenerationRequest> all_requests() {
  std::vector<GenerationRequest> requests;
  for (int k = 0; k < 12; ++k) {
    GenerationRequest request;
    request.prompt = std::string(150 + static_cast<size_t>(k) * 17, 'a') + std::to_string(k);
    request.max_tokens = 120;
    request.sampling.temperature = 0;
    requests.push_back(request);
  }
  requests[1].min_tokens = 40;
  requests[2].min_tokens = 119;
  requests[3].ignore_end = requests[4].ignore_end = requests[5].ignore_end = true;
  requests[4].make_parser = [] { return std::make_unique<OpenParser>(); };
  requests[4].reasoning_budget = {7, {'d', 'o', 'n', 'e'}};
  requests[5].sampling.repetition_penalty = 1.2f;
  requests[6].sampling.temperature = 1;
  requests[7].stop_token_ids = {3, 77, 99, 140, 200};
  requests[7].min_tokens = 10;
  requests[8].top_logprobs = 1;
  requests[9].sampling.temperature = 1;
  requests[9].sampling.top_k = 1;
  requests[10].sampling.logit_bias = {{65, 5.0f}};
  return requests;
}

TEST(BestIds, SameTokensAsWithLogits) {
  const auto configure = [](FakeModel& m) {
    std::vector<int32_t> ends;  // many, so that replies would often end before min_tokens
    for (int32_t id = 20; id < 30; ++id) ends.push_back(id);
    m.set_eos(ends);
  };
  const std::vector<GenerationRequest> requests = all_requests();
  std::vector<std::vector<int32_t>> expected;
  {
    auto engine = fake_engine({.context = 1024}, configure);
    for (const GenerationRequest& request : requests)
      expected.push_back(generate(*engine, request).token_ids);
  }
  EXPECT_GE(expected[1].size(), 40u);

  int64_t num_found = 0;
  std::promise<void> all_are_there;
  EngineParts parts = fake_parts({.context = 1024, .num_pages = 6, .max_sequences = 6}, configure);
  parts.backend = std::make_unique<BestBackend>(num_found, all_are_there.get_future());
  auto engine = make_engine(std::move(parts));
  ASSERT_TRUE(engine.ok());
  std::vector<std::unique_ptr<TokenStream>> streams;
  for (const GenerationRequest& request : requests) streams.push_back(*(*engine)->submit(request));
  all_are_there.set_value();
  for (size_t i = 0; i < streams.size(); ++i) {
    const GenerationResult result = finish(*streams[i]);
    EXPECT_NE(result.finish_reason, FinishReason::kError) << result.error.message;
    EXPECT_EQ(result.token_ids, expected[i]) << "request " << i;
  }
  EXPECT_GT(engine_gauges(**engine).num_preemptions, 0);
  engine->reset();
  EXPECT_GT(num_found, 100);
}

}  // namespace
}  // namespace invar
