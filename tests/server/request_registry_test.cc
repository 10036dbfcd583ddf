// Who runs, who may see it, and an end to it: over an engine whose steps the test lets go one by
// one.
#include "server/request_registry.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <future>
#include <thread>

#include "engine/fakes.h"
#include "server/http/exchange.h"

namespace invar::server {
namespace {

using invar::testing::fake_parts;
using invar::testing::FakeModel;

class SteppedModel : public FakeModel {
 public:
  using FakeModel::FakeModel;
  Tensor forward(ops::Context& ctx, const Batch& batch) const override {
    std::unique_lock lock(mutex_);
    ++num_begun_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return num_allowed_ >= num_begun_; });
    lock.unlock();
    return FakeModel::forward(ctx, batch);
  }
  // Until step `number` (from 1) has begun.
  void wait_for_step(int number) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return num_begun_ >= number; });
  }
  void allow_steps(int number) {
    const std::lock_guard lock(mutex_);
    num_allowed_ = number;
    changed_.notify_all();
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable changed_;
  mutable int num_begun_ = 0;
  int num_allowed_ = 0;
};

class RegistryTest : public ::testing::Test {
 protected:
  RegistryTest() {
    EngineParts parts = fake_parts({.max_sequences = 1, .prefill_chunk = 64});
    auto model = std::make_unique<SteppedModel>(parts.model->info().vocab_size);
    model_ = model.get();
    parts.model = std::move(model);
    engine_ = *make_engine(std::move(parts));
  }
  ~RegistryTest() override { model_->allow_steps(1 << 30); }

  struct Served {
    std::shared_ptr<Exchange> exchange;
    std::shared_ptr<Choices> choices;
    std::unique_ptr<RequestRegistry::Entry> entry;
  };
  Served serve(const std::string& id, const std::string& key = "", int num_prompt_tokens = 100,
               int num_choices = 1) {
    Served served;
    served.exchange = std::make_shared<Exchange>(ApiStyle::kOpenAi, "req-" + id, StreamLimits{},
                                                 std::function<void()>());
    GenerationRequest request;
    request.prompt_ids.assign(static_cast<size_t>(num_prompt_tokens), 65);
    request.max_tokens = 50;
    request.ignore_end = true;
    served.choices = *Choices::start(*engine_, choices_of(request, num_choices));
    RequestFacts facts;
    facts.id = id;
    facts.request_id = "req-" + id;
    facts.key_digest = key;
    facts.num_choices = num_choices;
    served.entry = std::make_unique<RequestRegistry::Entry>(
        &registry_, facts, Exchange::writer(served.exchange), served.choices);
    return served;
  }
  RequestStatus status(const std::string& id) { return registry_.find("", id)->status; }

  RequestRegistry registry_;
  std::unique_ptr<Engine> engine_;
  SteppedModel* model_;
};

TEST_F(RegistryTest, ShowsHowFarARequestIs) {
  const Served first = serve("a");
  const Served second = serve("b");
  model_->wait_for_step(1);
  EXPECT_EQ(status("a").state, RequestState::kPrefill);
  EXPECT_EQ(status("a").num_prefilled_tokens, 0);
  EXPECT_EQ(status("a").num_prompt_tokens, 100);
  EXPECT_EQ(status("a").num_kv_pages, 1);
  EXPECT_EQ(status("b").state, RequestState::kQueued);
  EXPECT_EQ(status("b").num_prompt_tokens, 100);
  EXPECT_EQ(status("b").num_kv_pages, 0);
  model_->allow_steps(1);
  model_->wait_for_step(2);
  EXPECT_EQ(status("a").num_prefilled_tokens, 64);
  EXPECT_EQ(status("a").num_completion_tokens, 0);
  // Who waits has waited longer at every look; who runs has not.
  const double begun_after_ms = status("a").queue_ms;
  const double waited_ms = status("b").queue_ms;
  while (status("b").queue_ms == waited_ms) std::this_thread::yield();
  EXPECT_GT(status("b").queue_ms, waited_ms);
  EXPECT_EQ(status("a").queue_ms, begun_after_ms);
  model_->allow_steps(4);
  model_->wait_for_step(5);  // the prompt took two steps, then one token each
  EXPECT_EQ(status("a").state, RequestState::kDecode);
  EXPECT_EQ(status("a").num_prefilled_tokens, 100);
  EXPECT_EQ(status("a").num_completion_tokens, 3);
  EXPECT_GE(status("b").queue_ms, waited_ms);
}

TEST_F(RegistryTest, ListsOnlyTheCallersOwnNewestFirst) {
  const Served a = serve("a", "key1"), b = serve("b", "key2"), c = serve("c", "key1");
  const std::vector<ListedRequest> mine = registry_.list("key1");
  ASSERT_EQ(mine.size(), 2u);
  EXPECT_EQ(mine[0].facts.id, "c");
  EXPECT_EQ(mine[1].facts.id, "a");
  EXPECT_TRUE(registry_.list("").empty());
  EXPECT_FALSE(registry_.find("key1", "b"));
  EXPECT_TRUE(registry_.find("key2", "req-b"));
  EXPECT_FALSE(registry_.cancel("key1", "b"));
  EXPECT_FALSE(b.exchange->closed());
}

TEST_F(RegistryTest, CancelReturnsWhenThePagesAreFree) {
  Served served = serve("a");
  model_->wait_for_step(1);
  auto cancelled = std::async(std::launch::async, [&] { return registry_.cancel("", "req-a"); });
  // Its step still runs, and uses its pages.
  EXPECT_EQ(cancelled.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(engine_gauges(*engine_).num_used_pages, 1);
  EXPECT_FALSE(registry_.cancel("", "a")) << "twice";
  EXPECT_TRUE(registry_.list("").empty());
  model_->allow_steps(1);
  const std::optional<ListedRequest> found = cancelled.get();
  ASSERT_TRUE(found);
  EXPECT_EQ(engine_gauges(*engine_).num_used_pages, 0);
  EXPECT_EQ(found->status.state, RequestState::kPrefill);
  const Exchange::Output output = served.exchange->take();
  ASSERT_TRUE(output.response);
  EXPECT_EQ(output.response->status, 499);
  EXPECT_NE(output.response->body.find("request_cancelled"), std::string::npos);
  served.entry.reset();
  EXPECT_EQ(registry_.counters().cancelled_by_api, 1);
  EXPECT_EQ(registry_.counters().ended_abort, 1);
}

TEST_F(RegistryTest, AnAnswerThatIsCompleteCannotBeCancelled) {
  model_->allow_steps(1 << 30);
  Served served = serve("a", "", 10, 2);
  while (served.choices->next()) {
  }
  served.exchange->send(json_response("{}"));
  EXPECT_FALSE(registry_.cancel("", "a"));
  served.choices->set_called_tools(1);
  served.entry.reset();
  EXPECT_TRUE(registry_.list("").empty());
  EXPECT_EQ(registry_.counters().ended_length, 1);
  EXPECT_EQ(registry_.counters().ended_tool_calls, 1);
  EXPECT_EQ(registry_.counters().cancelled_by_api, 0);
}

TEST_F(RegistryTest, CountsWhoEndedAStreamAndWhen) {
  Served queued, running, slow;
  running = serve("a");
  queued = serve("b");
  slow = serve("c");
  model_->wait_for_step(1);
  queued.exchange->close(CloseReason::kClientGone);
  running.exchange->close(CloseReason::kClientGone);
  slow.exchange->fail(api_error("client_too_slow", "x"), CloseReason::kClientTooSlow);
  model_->allow_steps(1 << 30);
  for (Served* one : {&queued, &running, &slow}) {
    one->choices->wait_end();  // the entry cancelled it
    one->entry.reset();
  }
  const RequestCounters& counters = registry_.counters();
  EXPECT_EQ(counters.left_queued, 1);
  EXPECT_EQ(counters.left_prefill, 1);
  EXPECT_EQ(counters.left_decode, 0);
  EXPECT_EQ(counters.cancelled_by_client, 2);
  EXPECT_EQ(counters.cancelled_by_slow_reader, 1);
  EXPECT_EQ(counters.ended_abort, 3);
}

}  // namespace
}  // namespace invar::server
