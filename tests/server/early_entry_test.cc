// A request that is entered before its choices start: it scores its prompts first.
#include <gtest/gtest.h>

#include <condition_variable>
#include <future>

#include "scripted_streams.h"
#include "server/http/exchange.h"
#include "server/request_registry.h"

namespace invar::server {
namespace {

struct Early {
  Early()
      : exchange(std::make_shared<Exchange>(ApiStyle::kOpenAi, "req", StreamLimits{}, nullptr)) {
    RequestFacts facts;
    facts.id = "cmpl-1";
    facts.num_choices = 2;
    facts.num_prompt_tokens = 9;
    entry = std::make_unique<RequestRegistry::Entry>(&registry, facts, Exchange::writer(exchange));
  }
  RequestRegistry registry;
  std::shared_ptr<Exchange> exchange;
  std::unique_ptr<RequestRegistry::Entry> entry;
};

TEST(EarlyEntry, IsListed) {
  Early early;
  const std::vector<ListedRequest> listed = early.registry.list("");
  ASSERT_EQ(listed.size(), 1u);
  EXPECT_EQ(listed[0].status.state, RequestState::kPrefill);
  EXPECT_EQ(listed[0].status.num_prompt_tokens, 9);
  EXPECT_EQ(early.registry.running_choices().size(), 1u);
  early.registry.drop_queued(api_error("draining", "d"));
  EXPECT_FALSE(early.exchange->closed()) << "it waits no longer";
  early.entry.reset();
  EXPECT_TRUE(early.registry.list("").empty());
  EXPECT_EQ(early.registry.counters().ended_abort, 0);
}

TEST(EarlyEntry, CancelStopsItsWorkAndWaitsUntilItHasLeft) {
  Early early;
  std::mutex mutex;
  std::condition_variable changed;
  bool stopped = false;
  const std::stop_callback on_stop(early.entry->stop(), [&] {
    const std::lock_guard lock(mutex);
    stopped = true;
    changed.notify_all();
  });
  auto cancelled =
      std::async(std::launch::async, [&] { return early.registry.cancel("", "cmpl-1"); });
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return stopped; });
  lock.unlock();
  EXPECT_TRUE(early.exchange->closed());
  EXPECT_EQ(cancelled.wait_for(std::chrono::milliseconds(0)), std::future_status::timeout);
  early.entry.reset();
  const std::optional<ListedRequest> found = cancelled.get();
  ASSERT_TRUE(found);
  EXPECT_EQ(found->status.state, RequestState::kPrefill);
  EXPECT_EQ(early.registry.counters().cancelled_by_api, 1);
  EXPECT_EQ(early.registry.counters().ended_abort, 2);
}

TEST(EarlyEntry, ChoicesThatStartTooLateAreCancelled) {
  Early early;
  early.exchange->close(CloseReason::kClientGone);
  EXPECT_TRUE(early.entry->stop().stop_requested());
  invar::testing::ScriptedEngine engine({{.events = {}, .never_ends = true}});
  const std::shared_ptr<Choices> choices =
      *Choices::start(engine, std::vector<GenerationRequest>(1));
  early.entry->start(choices);
  while (choices->next()) {
  }
  EXPECT_EQ(choices->result(0).finish_reason, FinishReason::kCancelled);
  EXPECT_EQ(early.registry.counters().left_prefill, 1);
}

}  // namespace
}  // namespace invar::server
