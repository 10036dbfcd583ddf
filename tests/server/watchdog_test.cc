// A standstill is noticed, and nothing else is taken for one.
#include "server/watchdog.h"

#include <gtest/gtest.h>

#include <atomic>

#include "engine/fakes.h"

namespace invar::server {
namespace {

using namespace std::chrono_literals;
using invar::testing::fake_parts;
using invar::testing::FakeModel;

// Its first step waits until it is let go, working or not.
class WaitingModel : public FakeModel {
 public:
  using FakeModel::FakeModel;
  Tensor forward(ops::Context& ctx, const Batch& batch) const override {
    while (!go_on) {
      if (works) ++*ctx.num_operations;
      std::this_thread::sleep_for(1ms);
    }
    return FakeModel::forward(ctx, batch);
  }
  std::atomic<bool> go_on = false, works = false;
};

class WatchdogTest : public ::testing::Test {
 protected:
  WatchdogTest() {
    EngineParts parts = fake_parts({});
    auto model = std::make_unique<WaitingModel>(parts.model->info().vocab_size);
    model_ = model.get();
    parts.model = std::move(model);
    engine_ = *make_engine(std::move(parts));
  }
  ~WatchdogTest() override { model_->go_on = true; }

  std::unique_ptr<TokenStream> submit(int64_t max_tokens) {
    GenerationRequest request;
    request.prompt_ids = {65, 66};
    request.max_tokens = max_tokens;
    request.ignore_end = true;
    return *engine_->submit(request);
  }
  // Whether it barks within some time-outs, long enough for a machine that is busy.
  bool stalls() {
    std::atomic<bool> stalled = false;
    const Watchdog watchdog(*engine_, 200ms, [&] { stalled = true; });
    for (int i = 0; i < 60 && !stalled; ++i) std::this_thread::sleep_for(10ms);
    return stalled;
  }

  std::unique_ptr<Engine> engine_;
  WaitingModel* model_;
};

TEST_F(WatchdogTest, SeesAStepThatStandsStill) {
  const std::unique_ptr<TokenStream> stream = submit(4);
  EXPECT_TRUE(stalls());
}

TEST_F(WatchdogTest, TakesNoIdleEngineForOne) {
  EXPECT_FALSE(stalls());
  model_->go_on = true;
  submit(4)->wait_end();
  EXPECT_FALSE(stalls());
}

TEST_F(WatchdogTest, TakesNoLongStepForOne) {
  model_->works = true;
  const std::unique_ptr<TokenStream> stream = submit(4);
  EXPECT_FALSE(stalls());
}

TEST_F(WatchdogTest, TakesNoSlowReaderForOne) {
  model_->go_on = true;
  const std::unique_ptr<TokenStream> stream = submit(1000);
  while (stream->status().state != RequestState::kPaused) std::this_thread::sleep_for(1ms);
  EXPECT_FALSE(stalls());
}

}  // namespace
}  // namespace invar::server
