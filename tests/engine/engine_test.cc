// The engine over a fake model: what a stream says, how it ends, and that nothing is left behind.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/hash.h"
#include "engine/fakes.h"

namespace invar {
namespace {

using namespace testing;
using ::testing::HasSubstr;

GenerationRequest text_request(std::string prompt, int64_t max_tokens) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = max_tokens;
  return request;
}

TEST(EngineTest, GreedyReplyIsTheModelsArgmaxChain) {
  // The same recurrence, written once more over plain vectors.
  std::vector<int32_t> tokens = {256, 'h', 'i'};
  std::vector<uint64_t> state;
  for (size_t p = 0; p < 3 + 20; ++p) {
    uint64_t h = mix64(static_cast<uint64_t>(tokens[p]) + 77);
    h = mix64(h + p);
    if (p > 0) h = mix64(h ^ state[p - 1]) + state[p / 2] + 3 * state[p / 3];
    state.push_back(mix64(h));
    if (p + 1 < tokens.size()) continue;
    int32_t best = 0;
    for (int32_t id = 0; id < 258; ++id)  // 258 is unused, above is padding
      if (FakeModel::logit(state[p], id) > FakeModel::logit(state[p], best)) best = id;
    tokens.push_back(best);
  }
  GenerationRequest request = text_request("hi", 20);
  request.ignore_end = true;
  auto engine = fake_engine();
  const GenerationResult result = generate(*engine, request);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  ASSERT_EQ(result.token_ids.size(), 20u);
  EXPECT_TRUE(std::equal(result.token_ids.begin(), result.token_ids.end(), tokens.begin() + 3));
  EXPECT_EQ(result.token_sha, token_sha(result.token_ids));
  EXPECT_EQ(result.arithmetic_id, "fake-1");
  EXPECT_EQ(result.num_prompt_tokens, 3);
  EXPECT_EQ(result.num_cached_tokens, 0);
}

TEST(EngineTest, EventsJoinToTheResult) {
  auto engine = fake_engine();
  GenerationRequest request = text_request("abc", 100);
  request.ignore_end = true;
  request.sampling.temperature = 1;
  auto stream = engine->submit(request);
  ASSERT_TRUE(stream.ok());
  std::vector<TokenEvent> events;
  const GenerationResult result = finish(**stream, &events);
  std::string text;
  std::vector<int32_t> ids;
  for (const TokenEvent& event : events) {
    text += event.text;
    ids.push_back(event.id);
    EXPECT_FALSE(event.logprob.has_value());
  }
  EXPECT_EQ(text, result.text);
  EXPECT_EQ(ids, result.token_ids);
  EXPECT_GE(result.prefill_ms, 0);
  EXPECT_GE(result.decode_ms, 0);
}

std::vector<int32_t> bytes_of(std::string_view text) {
  std::vector<int32_t> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

TEST(EngineTest, EndTokenEndsAndHasNoText) {
  std::vector<int32_t> script = bytes_of("ok");
  script.push_back(257);
  auto engine = fake_engine({}, [&](FakeModel& m) { m.set_script(2, script); });
  const GenerationResult result = generate(*engine, text_request("q", 50));
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.text, "ok");
  EXPECT_EQ(result.token_ids, script);
  EXPECT_EQ(result.stop_text, "");

  GenerationRequest on = text_request("q", 4);
  on.ignore_end = true;
  const GenerationResult longer = generate(*engine, on);
  EXPECT_EQ(longer.finish_reason, FinishReason::kLength);
  EXPECT_EQ(longer.token_ids.size(), 4u);
}

TEST(EngineTest, EndIdsOfTheModelEndToo) {
  auto engine = fake_engine({}, [](FakeModel& m) {
    m.set_script(2, {'a', 'b', 'c'});
    m.set_eos({'b'});
  });
  const GenerationResult result = generate(*engine, text_request("q", 50));
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.text, "a");
  EXPECT_EQ(engine->description().end_ids, (std::vector<int32_t>{'b', 257}));
}

// D2 of the reported cases.
TEST(EngineTest, StopTextOverTokens) {
  const std::vector<std::string> pieces = {"a E", "ND", "_", "X E", "! tail"};
  const std::vector<int32_t> script = {259, 260, 261, 262, 260, 263, 'z'};
  auto engine = fake_engine({.pieces = pieces}, [&](FakeModel& m) { m.set_script(2, script); });
  GenerationRequest request = text_request("q", 50);
  request.stop = {"END_OF", "END!"};
  auto stream = engine->submit(request);
  ASSERT_TRUE(stream.ok());
  std::vector<TokenEvent> events;
  const GenerationResult result = finish(**stream, &events);
  EXPECT_EQ(result.text, "a END_X ");
  EXPECT_EQ(result.stop_text, "END!");
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.token_ids.size(), 6u);
  ASSERT_EQ(events.size(), 6u);
  EXPECT_EQ(events[0].text, "a ");  // only "E" may be held
}

TEST(EngineTest, StopWinsOverTheLimitInTheSameToken) {
  auto engine = fake_engine({}, [](FakeModel& m) { m.set_script(2, bytes_of("abc")); });
  GenerationRequest request = text_request("q", 3);
  request.stop = {"c"};
  const GenerationResult result = generate(*engine, request);
  EXPECT_EQ(result.finish_reason, FinishReason::kStop);
  EXPECT_EQ(result.text, "ab");
}

TEST(EngineTest, HeldTextIsDeliveredAtTheLimit) {
  auto engine = fake_engine({}, [](FakeModel& m) { m.set_script(2, bytes_of("xEN\xe4\xb8")); });
  GenerationRequest request = text_request("q", 3);
  request.stop = {"END"};
  EXPECT_EQ(generate(*engine, request).text, "xEN");
  request.max_tokens = 5;  // a character cut in two becomes one U+FFFD
  EXPECT_EQ(generate(*engine, request).text, "xEN\xef\xbf\xbd");
}

TEST(EngineTest, LogitsThatAreNotNumbersEndThatRequestOnly) {
  auto engine = fake_engine({}, [](FakeModel& m) { m.bad_logits_at = 6; });
  GenerationRequest request = text_request("q", 20);
  request.ignore_end = true;
  const GenerationResult result = generate(*engine, request);
  EXPECT_EQ(result.finish_reason, FinishReason::kError);
  EXPECT_THAT(result.error.message, HasSubstr("not a finite number"));
  EXPECT_EQ(result.token_ids.size(), 5u);
  request.max_tokens = 3;
  EXPECT_EQ(generate(*engine, request).finish_reason, FinishReason::kLength);
}

TEST(EngineTest, UnusedAndPaddingIdsAreNeverSampled) {
  auto engine = fake_engine();
  GenerationRequest request = text_request("q", 1500);
  request.ignore_end = true;
  request.sampling.temperature = 5;
  for (const int32_t id : generate(*engine, request).token_ids) EXPECT_LT(id, 258);
}

TEST(EngineTest, LogprobsComeWithEachEvent) {
  auto engine = fake_engine();
  GenerationRequest request = text_request("q", 5);
  request.top_logprobs = 3;
  request.ignore_end = true;
  auto stream = engine->submit(request);
  ASSERT_TRUE(stream.ok());
  std::vector<TokenEvent> events;
  finish(**stream, &events);
  for (const TokenEvent& event : events) {
    ASSERT_TRUE(event.logprob.has_value());
    EXPECT_EQ(event.logprob->id, event.id);
    EXPECT_LT(event.logprob->logprob, 0);
    EXPECT_EQ(event.top_logprobs.size(), 3u);
  }
}

TEST(EngineTest, ChatGoesThroughTheTemplate) {
  auto engine = fake_engine();
  GenerationRequest chat;
  chat.messages = {{"system", "S"}, {"user", "U"}};
  const auto text = engine->apply_chat_template(chat);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "[system]S[user]U[assistant]");
  const auto ids = engine->prompt_ids(chat);
  ASSERT_TRUE(ids.ok());
  EXPECT_EQ(*ids, bytes_of(*text));  // no BOS: the template decides
  const auto both = engine->chat_prompt(chat);
  ASSERT_TRUE(both.ok());
  EXPECT_EQ(both->text, *text);
  EXPECT_EQ(both->ids, *ids);
  GenerationRequest json;
  json.messages_json = R"([{"role":"system","content":"S"},{"role":"user","content":"U"}])";
  const auto same = engine->prompt_ids(json);
  ASSERT_TRUE(same.ok()) << same.error().message;
  EXPECT_EQ(*same, *ids);
}

TEST(EngineTest, TheLastMessageGoesOnWhereItEnds) {
  auto engine = fake_engine();
  GenerationRequest request;
  request.continue_final_message = true;
  // What the engine itself marks the end with is text like any other.
  request.messages = {{"user", "hi"}, {"assistant", "a\x01invar goes on here\x01 b"}};
  EXPECT_EQ(*engine->apply_chat_template(request),
            "[user]hi[assistant]a\x01invar goes on here\x01 b");
  request.messages.clear();
  request.messages_json =
      R"([{"role":"user","content":"hi"},{"role":"assistant","content":"a","tool_calls":null}])";
  const auto text = engine->apply_chat_template(request);
  ASSERT_TRUE(text.ok()) << text.error().message;
  EXPECT_EQ(*text, "[user]hi[assistant]a");
  request.messages_json =
      R"([{"role":"user","content":"hi"},{"role":"assistant","content":"a","tool_calls":[]}])";
  EXPECT_FALSE(engine->apply_chat_template(request).ok());
}

TEST(EngineTest, RefusesWhatCannotWork) {
  auto engine = fake_engine({.context = 256});
  const auto error_of = [&](const std::function<void(GenerationRequest&)>& change) {
    GenerationRequest request = text_request("q", 4);
    change(request);
    auto stream = engine->submit(request);
    return stream.ok() ? std::string("accepted") : stream.error().message;
  };
  using R = GenerationRequest;
  EXPECT_EQ(error_of([](R&) {}), "accepted");
  EXPECT_THAT(error_of([](R& r) { r.prompt.reset(); }), HasSubstr("exactly one of messages"));
  EXPECT_THAT(error_of([](R& r) { r.prompt_ids = {1}; }), HasSubstr("has 2"));
  EXPECT_THAT(error_of([](R& r) { r.tools_json = "[]"; }), HasSubstr("tools_json"));
  EXPECT_THAT(error_of([](R& r) { r.continue_final_message = true; }),
              HasSubstr("continue_final_message"));
  EXPECT_THAT(error_of([](R& r) { r.prompt.reset(), r.prompt_ids = {1, 900}; }),
              HasSubstr("prompt token 1 is 900"));
  EXPECT_THAT(error_of([](R& r) { r.prompt.reset(), r.messages_json = std::string(1, '{'); }),
              HasSubstr("messages_json"));
  EXPECT_THAT(error_of([](R& r) { r.sampling.temperature = -1; }), HasSubstr("temperature"));
  EXPECT_THAT(error_of([](R& r) { r.sampling.temperature = std::nanf(""); }),
              HasSubstr("temperature"));
  EXPECT_THAT(error_of([](R& r) { r.sampling.top_p = 0; }), HasSubstr("top_p"));
  EXPECT_THAT(error_of([](R& r) { r.sampling.top_k = -2; }), HasSubstr("top_k"));
  EXPECT_THAT(error_of([](R& r) { r.sampling.min_p = 1.5f; }), HasSubstr("min_p"));
  EXPECT_THAT(error_of([](R& r) { r.sampling.repetition_penalty = 0; }),
              HasSubstr("repetition_penalty"));
  EXPECT_THAT(error_of([](R& r) { r.sampling.logit_bias = {{9999, 1.f}}; }),
              HasSubstr("logit_bias"));
  EXPECT_THAT(error_of([](R& r) { r.top_logprobs = 21; }), HasSubstr("top_logprobs"));
  EXPECT_THAT(error_of([](R& r) { r.stop.assign(17, "x"); }), HasSubstr("17 strings"));
  EXPECT_THAT(error_of([](R& r) { r.stop = {"a", ""}; }), HasSubstr("stop[1] has 0 bytes"));
  EXPECT_THAT(error_of([](R& r) { r.stop = {std::string(257, 'x')}; }), HasSubstr("257 bytes"));
  EXPECT_THAT(error_of([](R& r) { r.stop = {"\xff"}; }), HasSubstr("UTF-8"));
  EXPECT_THAT(error_of([](R& r) { r.max_tokens = -2; }), HasSubstr("max_tokens"));
}

// D8: window 256, the message gives window, prompt and asked counts.
TEST(EngineTest, PromptsLargerThanTheWindow) {
  auto engine = fake_engine({.context = 256});
  GenerationRequest request;
  request.prompt_ids.assign(300, 'a');
  EXPECT_THAT(engine->submit(request).error().message, HasSubstr("256 positions"));
  request.prompt_ids.assign(200, 'a');
  request.max_tokens = 100;
  const Error error = engine->submit(request).error();
  EXPECT_THAT(error.message, HasSubstr("200 tokens"));
  EXPECT_THAT(error.message, HasSubstr("max_tokens 100"));
  request.max_tokens = -1;
  request.ignore_end = true;
  const GenerationResult result = generate(*engine, request);
  EXPECT_EQ(result.token_ids.size(), 56u);
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  request.prompt_ids.assign(256, 'a');
  EXPECT_FALSE(engine->submit(request).ok());
  request.max_tokens = 0;
  EXPECT_EQ(generate(*engine, request).finish_reason, FinishReason::kLength);
}

void wait_until_idle(const Engine& engine) {
  for (int i = 0; i < 5000 && engine_gauges(engine).num_requests > 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  EXPECT_EQ(engine_gauges(engine).num_requests, 0);
  EXPECT_EQ(engine_gauges(engine).num_used_pages, 0);
}

TEST(EngineTest, CancelEndsTheStream) {
  auto engine = fake_engine({.context = 100000});
  GenerationRequest request = text_request("q", 90000);
  request.ignore_end = true;
  auto stream = engine->submit(request);
  ASSERT_TRUE((*stream)->next().has_value());
  (*stream)->cancel();
  const GenerationResult result = finish(**stream);
  EXPECT_EQ(result.finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(result.token_sha, token_sha(result.token_ids));
  EXPECT_EQ(engine_gauges(*engine).num_used_pages, 0);
}

TEST(EngineTest, DroppedStreamsLeaveNothing) {
  auto engine = fake_engine({.context = 100000, .max_sequences = 2, .prefill_chunk = 16});
  GenerationRequest request;
  request.prompt_ids.assign(50000, 'a');  // still in its prompt, or waiting, when it is dropped
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(engine->submit(request).ok());
  wait_until_idle(*engine);
  GenerationRequest next = text_request("q", 4);
  next.ignore_end = true;
  EXPECT_EQ(generate(*engine, next).token_ids.size(), 4u);
}

TEST(EngineTest, SlowReaderPausesAndLosesNothing) {
  auto engine = fake_engine({.max_sequences = 2});
  GenerationRequest request = text_request("q", 1500);
  request.ignore_end = true;
  auto slow = engine->submit(request);
  auto slow2 = engine->submit(request);
  for (int i = 0; i < 2; ++i)  // others get through though both places are taken
    EXPECT_EQ(generate(*engine, request).token_ids.size(), 1500u);
  const int64_t steps = engine_gauges(*engine).num_steps;
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  EXPECT_EQ(engine_gauges(*engine).num_steps, steps);  // both wait for their readers
  const GenerationResult a = finish(**slow), b = finish(**slow2);
  EXPECT_EQ(a.token_ids.size(), 1500u);
  EXPECT_EQ(a.token_sha, b.token_sha);
}

TEST(EngineTest, EngineEndsBeforeItsStreams) {
  auto engine = fake_engine({.context = 100000, .max_sequences = 1});
  GenerationRequest request = text_request("q", 90000);
  request.ignore_end = true;
  auto running = engine->submit(request);
  auto waiting = engine->submit(request);
  (*running)->next();
  engine.reset();
  EXPECT_EQ(finish(**running).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(finish(**waiting).finish_reason, FinishReason::kCancelled);
  (*waiting)->cancel();  // harmless now
}

TEST(EngineTest, FullQueueIsRefused) {
  auto engine = fake_engine({.context = 100000, .max_waiting = 2});
  GenerationRequest request = text_request("q", 90000);
  request.ignore_end = true;
  auto a = engine->submit(request), b = engine->submit(request), c = engine->submit(request);
  EXPECT_TRUE(a.ok() && b.ok());
  ASSERT_FALSE(c.ok());
  EXPECT_EQ(c.error().code, ErrorCode::kUnavailable);
}

TEST(EngineTest, ScoreSeesEveryRowInOrder) {
  GenerationRequest request;
  request.prompt_ids = bytes_of("Some text that is longer than one chunk of sixteen rows.");
  request.max_tokens = 1;
  std::vector<std::vector<float>> solo;
  for (const int chunk : {1, 7, 16, 100}) {
    auto engine = fake_engine({.prefill_chunk = chunk});
    std::vector<std::vector<float>> rows;
    const auto scored = engine->score(request.prompt_ids, [&](int64_t index, auto logits) {
      EXPECT_EQ(index, static_cast<int64_t>(rows.size()));
      rows.emplace_back(logits.begin(), logits.end());
      return true;
    });
    ASSERT_TRUE(scored.ok()) << scored.error().message;
    EXPECT_EQ(rows.size(), request.prompt_ids.size());
    if (solo.empty()) solo = rows;
    EXPECT_EQ(rows, solo);
    wait_until_idle(*engine);
  }
  // The last row is what a greedy reply is drawn from.
  auto engine = fake_engine();
  const int32_t id = generate(*engine, request).token_ids.at(0);
  EXPECT_EQ(*std::max_element(solo.back().begin(), solo.back().begin() + 258),
            solo.back()[static_cast<size_t>(id)]);
}

TEST(EngineTest, ScoreStopsWhenTheVisitorDoes) {
  auto engine = fake_engine({.context = 100000});
  const std::vector<int32_t> ids(50000, 'a');
  int64_t visits = 0;
  EXPECT_TRUE(engine->score(ids, [&](int64_t, auto) { return ++visits < 3; }).ok());
  EXPECT_EQ(visits, 3);
  wait_until_idle(*engine);
  EXPECT_THROW((void)engine->score(ids, [](int64_t, auto) -> bool { throw 1; }), int);
  wait_until_idle(*engine);
  EXPECT_FALSE(engine->score({}, [](int64_t, auto) { return true; }).ok());
  EXPECT_FALSE(
      engine->score(std::vector<int32_t>(100001, 'a'), [](int64_t, auto) { return true; }).ok());
}

TEST(EngineTest, ScoreIsStoppedFromOutside) {
  auto engine = fake_engine({.context = 100000});
  const std::vector<int32_t> ids(50000, 'a');
  std::stop_source source;
  int64_t visits = 0;
  const auto stop_at_third = [&](int64_t, auto) {
    if (++visits == 3) source.request_stop();
    return true;
  };
  const auto stopped = engine->score(ids, stop_at_third, source.get_token());
  ASSERT_FALSE(stopped.ok());
  EXPECT_EQ(stopped.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(invar::engine_gauges(*engine).num_used_pages, 0);
  // Stopped before it began: no row is visited.
  visits = 0;
  EXPECT_FALSE(engine->score(ids, stop_at_third, source.get_token()).ok());
  EXPECT_EQ(visits, 0);
}

}  // namespace
}  // namespace invar
