// The queue between a handler and its connection, with a test in the connection's place.
#include "server/http/exchange.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

namespace invar::server {
namespace {

struct Rig {
  explicit Rig(StreamLimits limits = {})
      : exchange(
            std::make_shared<Exchange>(ApiStyle::kOpenAi, "req_1", limits, [this] { ++wakes; })),
        writer(Exchange::writer(exchange)) {}
  bool start() {
    StreamHead head;
    head.error_event = [](const ApiError& error, int64_t num_events) {
      return "error " + error.code + " behind " + std::to_string(num_events);
    };
    return writer->start_stream(std::move(head));
  }
  std::atomic<int> wakes = 0;
  std::shared_ptr<Exchange> exchange;
  std::shared_ptr<ResponseWriter> writer;
};

template <typename F>
bool soon(F condition) {
  for (int i = 0; i < 5000 && !condition(); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  return condition();
}

TEST(Exchange, FirstAnswerCounts) {
  Rig rig;
  rig.writer->send(json_response("1"));
  rig.writer->send(json_response("2"));
  rig.writer->fail(api_error("engine_error", "late"));
  EXPECT_FALSE(rig.start());
  const Exchange::Output output = rig.exchange->take();
  EXPECT_EQ(output.response->body, "1");
  EXPECT_TRUE(output.end);
  EXPECT_FALSE(output.failed);
  EXPECT_EQ(rig.wakes, 1);
}

TEST(Exchange, DroppedWriterIsAnswered) {
  Rig rig;
  rig.writer.reset();
  const Exchange::Output output = rig.exchange->take();
  EXPECT_EQ(output.response->status, 500);
  EXPECT_EQ(*find_header(output.response->headers, "x-should-retry"), "false");
}

TEST(Exchange, DroppedStreamGetsTheErrorEvent) {
  Rig rig;
  ASSERT_TRUE(rig.start());
  rig.writer->write_event("a");
  rig.writer.reset();
  const Exchange::Output output = rig.exchange->take();
  EXPECT_EQ(output.events, (std::deque<std::string>{"a", "error engine_error behind 1"}));
  EXPECT_TRUE(output.failed);
}

TEST(Exchange, WritersWaitAtEachLimitUntilHalfIsFree) {
  for (const StreamLimits limits : {StreamLimits{4, 1000}, StreamLimits{1000, 40}}) {
    Rig rig(limits);
    ASSERT_TRUE(rig.start());
    std::atomic<int> num_written = 0;
    std::thread writer([&] {
      for (int i = 0; i < 9; ++i) {
        if (!rig.writer->write_event("0123456789")) return;
        ++num_written;
      }
    });
    ASSERT_TRUE(soon([&] { return rig.exchange->paused_since().has_value(); }));
    EXPECT_EQ(num_written, 4);
    EXPECT_TRUE(rig.writer->paused());
    EXPECT_EQ(rig.exchange->take().events.size(), 4u);
    EXPECT_TRUE(rig.writer->paused());  // taken is not yet written
    rig.exchange->written();
    ASSERT_TRUE(soon([&] { return num_written == 8; }));
    rig.exchange->take();
    rig.exchange->written();
    writer.join();
    EXPECT_EQ(num_written, 9);
  }
}

TEST(Exchange, OneEventAboveTheByteLimitGoesThrough) {
  Rig rig({4, 10});
  ASSERT_TRUE(rig.start());
  EXPECT_TRUE(rig.writer->write_event(std::string(100, 'x')));
  EXPECT_EQ(rig.exchange->take().events.size(), 1u);
}

TEST(Exchange, CloseFreesAWaitingWriterAndTellsItsHandler) {
  Rig rig({1, 1000});
  ASSERT_TRUE(rig.start());
  std::atomic<int> calls = 0;
  CloseReason seen = CloseReason::kFailed;
  rig.writer->on_closed([&](CloseReason reason) {
    seen = reason;
    ++calls;
  });
  rig.writer->write_event("a");
  std::atomic<bool> result = true;
  std::thread writer([&] { result = rig.writer->write_event("b"); });
  ASSERT_TRUE(soon([&] { return rig.writer->paused(); }));
  rig.exchange->close(CloseReason::kClientGone);
  writer.join();
  EXPECT_FALSE(result);
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(seen, CloseReason::kClientGone);
  EXPECT_TRUE(rig.writer->closed());
  rig.writer->on_closed([&](CloseReason) { ++calls; });  // late: at once
  EXPECT_EQ(calls, 2);
  const int wakes = rig.wakes;
  rig.writer->end_stream();
  rig.writer->send(json_response(""));
  EXPECT_EQ(rig.wakes, wakes);
}

TEST(Exchange, FailFromOutside) {
  Rig rig;
  bool called = false;
  rig.writer->on_closed([&](CloseReason reason) { called = reason == CloseReason::kDraining; });
  rig.exchange->fail(api_error("draining", "end"), CloseReason::kDraining);
  EXPECT_TRUE(called);
  EXPECT_TRUE(rig.writer->closed());
  EXPECT_FALSE(rig.start());
  const Exchange::Output output = rig.exchange->take();
  EXPECT_EQ(output.response->status, 503);
  EXPECT_TRUE(output.end);
}

TEST(Exchange, NoCallbackAfterADeliveredAnswer) {
  Rig rig;
  bool called = false;
  rig.writer->on_closed([&](CloseReason) { called = true; });
  rig.writer->send(json_response("x"));
  rig.exchange->take();
  rig.exchange->close(CloseReason::kClientGone);
  rig.writer.reset();
  EXPECT_FALSE(called);
}

TEST(Exchange, ManyThreads) {
  // A handler writes while its connection takes, and a third one ends it at some time.
  for (int round = 0; round < 50; ++round) {
    Rig rig({4, 1000});
    std::atomic<bool> done = false;
    std::thread handler([&] {
      rig.start();
      while (rig.writer->write_event("e")) {
      }
      rig.writer.reset();
      done = true;
    });
    std::thread canceller([&] {
      std::this_thread::sleep_for(std::chrono::microseconds(round * 20));
      rig.exchange->fail(api_error("request_cancelled", "x"));
    });
    while (!done) {
      rig.exchange->take();
      rig.exchange->written();
    }
    handler.join();
    canceller.join();
    EXPECT_TRUE(rig.exchange->closed());
  }
}

}  // namespace
}  // namespace invar::server
