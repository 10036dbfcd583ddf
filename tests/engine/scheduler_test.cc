// The scheduler under thousands of random arrival traces with a simulated clock: everything ends,
// no page leaks, nobody starves, and running replies get a token in every step.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "backend/backend.h"
#include "cache/block_pool.h"

namespace invar {
namespace {

struct Simulated {
  Sequence sequence;
  int64_t arrives = 0, new_tokens = 0, cancelled_at = -1;
  int64_t pause_from = -1, pause_until = -1;
  bool added = false, ended = false;
  int64_t size_at_end() const { return sequence.num_prompt_tokens + new_tokens; }
};

struct Trace {
  SchedulerConfig config;
  int num_pages = 0;
  std::vector<std::unique_ptr<Simulated>> requests;
};

Trace random_trace(std::mt19937& rng) {
  Trace trace;
  trace.config.max_sequences = 1 + static_cast<int>(rng() % 5);
  trace.config.prefill_chunk = 1 + static_cast<int64_t>(rng() % 700);
  trace.config.max_logit_rows = 1 + static_cast<int64_t>(rng() % 300);
  trace.num_pages = 1 + static_cast<int>(rng() % 8);
  const int64_t context = int64_t{trace.num_pages} * kPagePositions;
  const size_t num_requests = 1 + rng() % 10;
  for (size_t i = 0; i < num_requests; ++i) {
    auto request = std::make_unique<Simulated>();
    const int64_t length = 1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(context));
    request->sequence.token_ids.assign(static_cast<size_t>(length), 1);
    request->sequence.num_prompt_tokens = length;
    request->sequence.arrival = static_cast<int64_t>(i);
    request->sequence.all_logits = rng() % 3 == 0;
    request->new_tokens = std::min<int64_t>(static_cast<int64_t>(rng() % 100), context - length);
    if (request->sequence.all_logits) request->new_tokens = 0;
    request->arrives = static_cast<int64_t>(rng() % 30);
    if (i > 0) request->arrives = std::max(request->arrives, trace.requests.back()->arrives);
    if (rng() % 6 == 0) request->cancelled_at = static_cast<int64_t>(rng() % 60);
    if (rng() % 5 == 0) {
      request->pause_from = static_cast<int64_t>(rng() % 40);
      request->pause_until = request->pause_from + static_cast<int64_t>(rng() % 200);
    }
    trace.requests.push_back(std::move(request));
  }
  return trace;
}

void check_pages(const Trace& trace, const BlockPool& pool) {
  std::set<int32_t> used;
  for (const auto& request : trace.requests)
    for (const int32_t page : request->sequence.pages) {
      EXPECT_TRUE(used.insert(page).second) << "page " << page << " has two owners";
      EXPECT_EQ(pool.num_users(page), 1);
    }
  EXPECT_EQ(static_cast<int>(used.size()) + pool.num_free(), pool.num_pages());
}

void check_plan(const Trace& trace, const StepPlan& plan) {
  std::set<const Sequence*> seen;
  int64_t prompt_rows = 0, rows = 0, scored_rows = 0;
  for (const PlannedWindow& w : plan.windows) {
    const Sequence& s = *w.sequence;
    EXPECT_TRUE(seen.insert(&s).second) << "two windows of a sequence";
    EXPECT_FALSE(s.paused);
    EXPECT_EQ(w.start, s.num_cached_tokens);
    EXPECT_GE(w.num_rows, 1);
    EXPECT_LE(w.num_rows, s.num_uncached_tokens());
    EXPECT_LE(w.start + w.num_rows, static_cast<int64_t>(s.pages.size()) * kPagePositions);
    if (s.num_uncached_tokens() > 1) prompt_rows += w.num_rows;
    const bool reaches_end = w.num_rows == s.num_uncached_tokens();
    EXPECT_EQ(w.num_logit_rows, s.all_logits ? w.num_rows : reaches_end ? 1 : 0);
    if (s.all_logits) scored_rows += w.num_rows;
    rows += w.num_rows;
  }
  EXPECT_LE(prompt_rows, trace.config.prefill_chunk);
  EXPECT_LE(scored_rows, trace.config.max_logit_rows);
  EXPECT_LE(plan.windows.size(), static_cast<size_t>(trace.config.max_sequences));
  EXPECT_EQ(rows, plan.num_rows);
}

void simulate(Trace& trace) {
  BlockPool pool(trace.num_pages);
  Scheduler scheduler(trace.config, pool);
  size_t num_ended = 0;
  const bool has_pauses =
      std::any_of(trace.requests.begin(), trace.requests.end(),
                  [](const auto& request) { return request->pause_until > request->pause_from; });
  int64_t idle_steps = 0;
  for (int64_t now = 0; num_ended < trace.requests.size(); ++now) {
    ASSERT_LT(now, 40000) << "starved";
    Simulated* oldest = nullptr;
    for (auto& request : trace.requests) {
      Simulated& r = *request;
      if (!r.added && r.arrives <= now) {
        scheduler.add(r.sequence);
        r.added = true;
      }
      r.sequence.paused = now >= r.pause_from && now < r.pause_until;
      if (r.added && !r.ended && r.cancelled_at >= 0 && r.cancelled_at <= now) {
        scheduler.remove(r.sequence);
        EXPECT_TRUE(r.sequence.pages.empty());
        r.ended = true;
        ++num_ended;
      }
      if (r.added && !r.ended && !r.sequence.paused && oldest == nullptr) oldest = &r;
    }
    const bool oldest_has_pages = oldest != nullptr && !oldest->sequence.pages.empty();
    const StepPlan plan = scheduler.next_step();
    check_plan(trace, plan);
    check_pages(trace, pool);
    if (plan.windows.empty()) {
      EXPECT_EQ(oldest, nullptr) << "somebody could run and nothing does";
      ++idle_steps;
      continue;
    }
    // The oldest that may run always gets on: no starvation. (One that was paused while it waited
    // takes no pages from younger ones that run, but is the next to enter.)
    const bool oldest_runs =
        std::any_of(plan.windows.begin(), plan.windows.end(),
                    [&](const PlannedWindow& w) { return w.sequence == &oldest->sequence; });
    EXPECT_TRUE(oldest_runs || (has_pauses && !oldest_has_pages));
    Scheduler::commit(plan);
    for (const PlannedWindow& w : plan.windows) {
      for (auto& request : trace.requests) {
        Simulated& r = *request;
        if (&r.sequence != w.sequence || r.sequence.num_uncached_tokens() > 0) continue;
        if (static_cast<int64_t>(r.sequence.token_ids.size()) >= r.size_at_end()) {
          scheduler.remove(r.sequence);
          r.ended = true;
          ++num_ended;
        } else {
          r.sequence.token_ids.push_back(2);
        }
      }
    }
  }
  EXPECT_EQ(pool.num_free(), pool.num_pages());
  EXPECT_EQ(scheduler.num_running() + scheduler.num_waiting(), 0);
}

TEST(Scheduler, RandomTraces) {
  std::mt19937 rng(2026);
  for (int i = 0; i < 3000; ++i) {
    Trace trace = random_trace(rng);
    simulate(trace);
    if (::testing::Test::HasFailure()) FAIL() << "trace " << i;
  }
}

std::unique_ptr<Sequence> sequence_of(int64_t arrival, size_t num_tokens) {
  auto sequence = std::make_unique<Sequence>();
  sequence->arrival = arrival;
  sequence->token_ids.assign(num_tokens, 1);
  sequence->num_prompt_tokens = static_cast<int64_t>(num_tokens);
  return sequence;
}

TEST(Scheduler, RunningRepliesGetARowInEveryStep) {
  BlockPool pool(100);
  Scheduler scheduler({.max_sequences = 4, .prefill_chunk = 10}, pool);
  auto reply = sequence_of(0, 3), prompt = sequence_of(1, 95);
  scheduler.add(*reply);
  scheduler.commit(scheduler.next_step());
  reply->token_ids.push_back(1);
  scheduler.add(*prompt);
  for (int step = 0; step < 10; ++step) {
    const StepPlan plan = scheduler.next_step();
    ASSERT_EQ(plan.windows.size(), 2u);
    EXPECT_EQ(plan.windows[0].sequence, reply.get());
    EXPECT_EQ(plan.windows[0].num_rows, 1);
    EXPECT_EQ(plan.windows[1].num_rows, step < 9 ? 10 : 5);
    EXPECT_EQ(plan.windows[1].num_logit_rows, step < 9 ? 0 : 1);
    scheduler.commit(plan);
    reply->token_ids.push_back(1);
  }
}

TEST(Scheduler, ShortPromptsShareAChunk) {
  BlockPool pool(100);
  Scheduler scheduler({.max_sequences = 4, .prefill_chunk = 10}, pool);
  auto a = sequence_of(0, 4), b = sequence_of(1, 4), c = sequence_of(2, 4);
  for (auto* s : {a.get(), b.get(), c.get()}) scheduler.add(*s);
  const StepPlan plan = scheduler.next_step();
  ASSERT_EQ(plan.windows.size(), 3u);
  EXPECT_EQ(plan.windows[2].num_rows, 2);
}

TEST(Scheduler, OutOfPagesPreemptsTheNewestAndResumesIt) {
  BlockPool pool(2);
  Scheduler scheduler({.max_sequences = 4, .prefill_chunk = 1000}, pool);
  auto a = sequence_of(0, 200), b = sequence_of(1, 200);
  scheduler.add(*a);
  scheduler.add(*b);
  int64_t steps = 0;
  for (; b->num_preemptions == 0; ++steps) {
    ASSERT_LT(steps, 100);
    const StepPlan plan = scheduler.next_step();
    scheduler.commit(plan);
    for (const PlannedWindow& w : plan.windows) w.sequence->token_ids.push_back(1);
  }
  EXPECT_EQ(a->num_preemptions, 0);
  EXPECT_TRUE(b->pages.empty());
  EXPECT_EQ(b->num_cached_tokens, 0);
  EXPECT_GE(b->token_ids.size(), 256u);  // sampled ids are kept
  EXPECT_EQ(a->pages.size(), 2u);
  scheduler.remove(*a);
  const StepPlan plan = scheduler.next_step();
  ASSERT_EQ(plan.windows.size(), 1u);
  EXPECT_EQ(plan.windows[0].sequence, b.get());
  EXPECT_EQ(plan.windows[0].num_rows, static_cast<int64_t>(b->token_ids.size()));
  scheduler.remove(*b);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPool, CountsUsers) {
  BlockPool pool(2);
  const auto a = pool.allocate(), b = pool.allocate();
  ASSERT_TRUE(a && b);
  EXPECT_NE(*a, *b);
  EXPECT_FALSE(pool.allocate().has_value());
  pool.retain(*a);
  pool.release(*a);
  EXPECT_EQ(pool.num_free(), 0);
  pool.release(*a);
  EXPECT_EQ(pool.num_free(), 1);
  EXPECT_EQ(pool.num_users(*a), 0);
  EXPECT_EQ(*pool.allocate(), *a);
  EXPECT_DEATH(pool.release(99), "page 99 of 2");
}

}  // namespace
}  // namespace invar
