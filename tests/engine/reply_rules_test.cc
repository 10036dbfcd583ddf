// What a request can ask of its reply beyond sampling: parts, stops in content only, stop ids, a
// least number of tokens, a budget for reasoning, progress of the prompt.
#include <gtest/gtest.h>

#include "engine/fakes.h"

namespace invar {
namespace {

using namespace testing;
using Kind = ReplyPart::Kind;

// "(" begins reasoning and ")" ends it; both are held back until they are certain, which is at
// once. Everything else is passed on as it comes.
class BracketParser : public ReplyParser {
 public:
  std::vector<ReplyPart> push(std::string_view text) override {
    std::vector<ReplyPart> parts;
    for (const char c : text) {
      const size_t at = num_bytes_++;
      if (c == '(' || c == ')')
        inside_ = c == '(';
      else if (inside_)
        parts.push_back({Kind::kReasoning, std::string(1, c)});
      else
        parts.push_back({Kind::kContent, std::string(1, c), at});
    }
    return parts;
  }
  std::vector<ReplyPart> finish() override { return {}; }
  bool in_reasoning() const override { return inside_; }

 private:
  bool inside_ = false;
  size_t num_bytes_ = 0;
};

std::unique_ptr<Engine> scripted(std::string_view text, bool ends = true) {
  std::vector<int32_t> script;
  for (const char c : text) script.push_back(static_cast<uint8_t>(c));
  if (ends) script.push_back(257);
  return fake_engine({}, [&](FakeModel& m) { m.set_script(2, script); });
}

GenerationRequest request_of(int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = "q";
  request.max_tokens = max_tokens;
  return request;
}

struct Read {
  GenerationResult result;
  std::string content, reasoning, in_order;
  int num_reasoning_tokens = 0;
  std::vector<PromptProgress> progress;
};

Read read(Engine& engine, const GenerationRequest& request) {
  auto stream = engine.submit(request);
  INVAR_CHECK(stream.ok(), "%s", stream.error().message.c_str());
  Read all;
  while (const auto event = (*stream)->next()) {
    if (event->progress) {
      all.progress.push_back(*event->progress);
      continue;
    }
    all.content += event->text;
    for (const ReplyPart& part : event->parts) {
      (part.kind == Kind::kContent ? all.content : all.reasoning) += part.text;
      all.in_order += part.text;
    }
    all.num_reasoning_tokens += event->is_reasoning;
  }
  all.result = (*stream)->result();
  return all;
}

GenerationRequest parsed_request(int64_t max_tokens) {
  GenerationRequest request = request_of(max_tokens);
  request.make_parser = [] { return std::make_unique<BracketParser>(); };
  return request;
}

TEST(ReplyRules, StopStringsAreLookedForInContentOnly) {
  auto engine = scripted("(a STOP b)c STOP d");
  GenerationRequest request = parsed_request(100);
  request.stop = {"STOP"};
  const Read all = read(*engine, request);
  EXPECT_EQ(all.reasoning, "a STOP b");
  EXPECT_EQ(all.content, "c ");
  EXPECT_EQ(all.result.text, "c ");
  EXPECT_EQ(all.result.stop_text, "STOP");
  EXPECT_EQ(all.num_reasoning_tokens, 10);  // brackets included
  EXPECT_EQ(all.result.token_ids.size(), 16u);

  request.stop_in_reasoning = true;
  const Read cut = read(*engine, request);
  EXPECT_EQ(cut.reasoning, "a ");
  EXPECT_EQ(cut.content, "");
  EXPECT_EQ(cut.result.stop_text, "STOP");
}

TEST(ReplyRules, StopTextEndsWhereAnotherPartBegins) {
  auto engine = scripted("a ST(x)OP b");
  GenerationRequest request = parsed_request(100);
  request.stop = {"STOP"};
  const Read all = read(*engine, request);
  EXPECT_EQ(all.content, "a STOP b");
  EXPECT_EQ(all.reasoning, "x");
  EXPECT_EQ(all.result.stop_text, "");
}

TEST(ReplyRules, HeldTextComesBeforeAnotherPart) {
  for (const char* said : {"a ST(x)OP b", "a ST(x ST)OP b", "(a ST)OP(ST)b"}) {
    auto engine = scripted(said);
    GenerationRequest request = parsed_request(100);
    request.stop = {"STOP"};
    std::string expected = said;
    std::erase_if(expected, [](char c) { return c == '(' || c == ')'; });
    for (const bool in_reasoning : {false, true}) {
      request.stop_in_reasoning = in_reasoning;
      EXPECT_EQ(read(*engine, request).in_order, expected) << in_reasoning;
    }
  }
}

TEST(ReplyRules, StopTextMayBeIncluded) {
  auto engine = scripted("one END two");
  GenerationRequest request = request_of(100);
  request.stop = {"END"};
  request.include_stop = true;
  const Read all = read(*engine, request);
  EXPECT_EQ(all.content, "one END");
  EXPECT_EQ(all.result.stop_text, "END");
}

TEST(ReplyRules, StopIdsEndWithoutTheirText) {
  auto engine = scripted("abcd");
  GenerationRequest request = request_of(100);
  request.stop_token_ids = {'x', 'c'};
  const Read all = read(*engine, request);
  EXPECT_EQ(all.content, "ab");
  EXPECT_EQ(all.result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(all.result.stop_token_id, 'c');
  EXPECT_EQ(all.result.token_ids.size(), 3u);

  request.stop_token_ids = {100000};
  const auto refused = engine->submit(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.error().message.find("stop_token_ids"), std::string::npos);
}

TEST(ReplyRules, NothingEndsBeforeMinTokens) {
  auto engine = scripted("aSbS");  // then the end token, five in all
  GenerationRequest request = request_of(100);
  request.stop = {"S"};
  request.min_tokens = 3;
  EXPECT_EQ(read(*engine, request).content, "aSb");
  request.min_tokens = 0;
  EXPECT_EQ(read(*engine, request).content, "a");
  request.stop.clear();
  request.min_tokens = 9;
  request.max_tokens = 12;
  const Read longer = read(*engine, request);
  EXPECT_GE(longer.result.token_ids.size(), 9u);
  for (size_t i = 0; i < 8; ++i) EXPECT_NE(longer.result.token_ids[i], 257);
  request.min_tokens = 13;
  EXPECT_FALSE(engine->submit(request).ok());

  auto cut = scripted("a\xe2");  // a character that never ends: shown as U+FFFD at the limit
  request = request_of(2);
  request.stop = {"\xef\xbf\xbd"};
  EXPECT_EQ(read(*cut, request).result.finish_reason, FinishReason::kStop);
  request.min_tokens = 2;
  const Read whole = read(*cut, request);
  EXPECT_EQ(whole.result.finish_reason, FinishReason::kLength);
  EXPECT_EQ(whole.content, "a\xef\xbf\xbd");
}

TEST(ReplyRules, ReasoningBudgetClosesIt) {
  auto engine = scripted("(long thoughts that go on", false);
  GenerationRequest request = parsed_request(12);
  request.reasoning_budget = {5, {'.', ')'}};
  const Read all = read(*engine, request);
  // Five tokens of reasoning, "(" among them; then the two that close it; then what the model says.
  EXPECT_EQ(all.reasoning, "long.");
  EXPECT_EQ(all.num_reasoning_tokens, 7);
  EXPECT_EQ(all.result.token_ids.size(), 12u);
  EXPECT_EQ(all.result.token_ids[6], ')');
  EXPECT_EQ(all.content, "hough");

  request.reasoning_budget = {50, {'.', ')'}};
  EXPECT_EQ(read(*engine, request).reasoning, "long though");
  request.reasoning_budget = {5, {}};
  EXPECT_FALSE(engine->submit(request).ok());
  for (const int32_t id : {100000, -1}) {
    request.reasoning_budget = {5, {'.', id}};
    const auto refused = engine->submit(request);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("reasoning_budget.closing_ids"), std::string::npos);
  }
}

TEST(ReplyRules, ProgressOfThePrompt) {
  auto engine = fake_engine({.prefill_chunk = 64});
  GenerationRequest request = request_of(2);
  request.prompt = std::string(199, 'x');  // 200 tokens with <bos>
  request.report_progress = true;
  const Read all = read(*engine, request);
  std::vector<int64_t> computed;
  for (const PromptProgress& progress : all.progress)
    computed.push_back(progress.num_computed_tokens);
  EXPECT_EQ(computed, (std::vector<int64_t>{0, 64, 128, 192}));
  const Read again = read(*engine, request);
  ASSERT_FALSE(again.progress.empty());
  EXPECT_EQ(again.progress[0].num_cached_tokens, again.result.num_cached_tokens);
  EXPECT_GT(again.progress[0].num_cached_tokens, 0);
}

TEST(ReplyRules, NoTokensWantedComputesThePrompt) {
  auto engine = fake_engine();
  GenerationRequest request = request_of(0);
  request.prompt = std::string(100, 'x');
  const Read first = read(*engine, request);
  EXPECT_EQ(first.result.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(first.result.token_ids.empty());
  EXPECT_GT(read(*engine, request).result.num_cached_tokens, 0);
}

TEST(ReplyRules, LogprobRangesFollowTheText) {
  auto engine = fake_engine({.pieces = {"\xe4", "\xb8\xad!"}},
                            [](FakeModel& m) { m.set_script(2, {'a', 259, 260, 257}); });
  auto stream = engine->submit(request_of(100));
  ASSERT_TRUE(stream.ok());
  std::vector<std::pair<size_t, size_t>> ranges;
  while (const auto event = (*stream)->next())
    ranges.emplace_back(event->text_begin, event->text_end);
  // The two that make up a character both stand where it does.
  const std::vector<std::pair<size_t, size_t>> expected = {{0, 1}, {1, 2}, {1, 5}, {0, 0}};
  EXPECT_EQ(ranges, expected);
}

TEST(ReplyRules, RepetitionPenaltyLooksBackOnlySoFar) {
  // Greedy with a strong penalty: among all tokens none comes twice, within the last two it may.
  auto engine = fake_engine();
  GenerationRequest request = request_of(60);
  request.ignore_end = true;
  request.sampling.repetition_penalty = 10;
  const auto num_distinct = [&](int64_t window) {
    request.sampling.repeat_last_n = window;
    std::vector<int32_t> ids = generate(*engine, request).token_ids;
    for (size_t i = 2; window == 2 && i < ids.size(); ++i)
      EXPECT_TRUE(ids[i] != ids[i - 1] && ids[i] != ids[i - 2]) << i;
    std::sort(ids.begin(), ids.end());
    return std::unique(ids.begin(), ids.end()) - ids.begin();
  };
  EXPECT_EQ(num_distinct(-1), 60);
  EXPECT_LT(num_distinct(2), 60);
  const GenerationResult off = [&] {
    request.sampling.repeat_last_n = 0;
    return generate(*engine, request);
  }();
  request.sampling.repetition_penalty = 1;
  EXPECT_EQ(off.token_ids, generate(*engine, request).token_ids);
}

}  // namespace
}  // namespace invar
