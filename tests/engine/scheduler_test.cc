// The scheduler under thousands of random arrival traces with a simulated clock: everything ends,
// no page leaks, nobody starves, and running replies get a token in every step.
#include "engine/scheduler.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "backend/backend.h"
#include "cache/prefix_cache.h"

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
  int num_pages = 0, cache_pages = 0;
  bool has_source = false;
  int num_states = 0;        // > 0: of a model with recurrent layers
  bool varies_rows = false;  // each step may have other rows of prompts
  std::vector<std::unique_ptr<Simulated>> requests;
};

Trace random_trace(std::mt19937& rng) {
  Trace trace;
  trace.config.max_sequences = 1 + static_cast<int>(rng() % 5);
  trace.config.prefill_chunk = 1 + static_cast<int64_t>(rng() % 700);
  trace.config.burst_tokens = static_cast<int64_t>(rng() % 300);
  trace.varies_rows = rng() % 2 == 0;
  trace.has_source = rng() % 2 == 0;
  if (!trace.has_source && rng() % 3 != 0) trace.num_states = 1 + static_cast<int>(rng() % 8);
  trace.config.max_logit_rows = 1 + static_cast<int64_t>(rng() % 300);
  trace.num_pages = 1 + static_cast<int>(rng() % 8);
  trace.cache_pages = static_cast<int>(rng() % 3) * trace.num_pages / 2;
  const int64_t context = int64_t{trace.num_pages} * kPagePositions;
  const size_t num_requests = 1 + rng() % 10;
  for (size_t i = 0; i < num_requests; ++i) {
    auto request = std::make_unique<Simulated>();
    const int64_t length = 1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(context));
    request->sequence.token_ids.assign(static_cast<size_t>(length), 1);
    // Mostly a beginning in common, then a text of its own.
    const size_t own = rng() % (static_cast<size_t>(length) + 1);
    for (size_t k = own; k < static_cast<size_t>(length); ++k)
      request->sequence.token_ids[k] = static_cast<int32_t>(rng() % 4);
    // Or the beginning of an earlier text, such that tails of pages are found again.
    if (i > 0 && rng() % 2 == 0) {
      const std::vector<int32_t>& other = trace.requests[rng() % i]->sequence.token_ids;
      const size_t shared = std::min(other.size() - rng() % std::min<size_t>(other.size(), 50),
                                     request->sequence.token_ids.size());
      std::copy_n(other.begin(), shared, request->sequence.token_ids.begin());
    }
    request->sequence.use_prefix_cache = rng() % 5 != 0;
    if (rng() % 6 == 0) request->sequence.cache_salt = "other";
    for (int64_t k = static_cast<int64_t>(rng() % 4); k > 0; --k)
      request->sequence.state_cuts.push_back(
          1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(length)));
    std::sort(request->sequence.state_cuts.begin(), request->sequence.state_cuts.end());
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

// What a page holds: the token and its whole history, at each position, as a model would write it.
using Contents = std::vector<std::vector<uint64_t>>;

uint64_t history(uint64_t before, int32_t token) {
  return (before ^ static_cast<uint64_t>(token + 1)) * 0x9E3779B97F4A7C15u + 1;
}

// Page `index` of the sequence's tokens.
std::vector<uint64_t> page_of(const Sequence& s, int64_t index) {
  std::vector<uint64_t> page(kPagePositions);
  uint64_t value = s.cache_salt.empty() ? 7 : 8;
  for (int64_t p = 0; p < (index + 1) * kPagePositions; ++p) {
    value = history(value, s.token_ids[static_cast<size_t>(p)]);
    page[static_cast<size_t>(p % kPagePositions)] = value;
  }
  return page;
}

void check_pages(const Trace& trace, const BlockPool& pool, const PrefixCache& cache) {
  std::map<int32_t, int> users;
  for (const auto& request : trace.requests) {
    const PrefixCache::Holding& holding = request->sequence.holding;
    for (size_t i = 0; i < holding.pages.size(); ++i)
      if (static_cast<int64_t>(i) >= holding.depth)
        EXPECT_EQ(users.count(holding.pages[i]), 0u) << "an own page has two owners";
      else
        ++users[holding.pages[i]];
    for (size_t i = static_cast<size_t>(holding.depth); i < holding.pages.size(); ++i)
      ++users[holding.pages[i]];
  }
  for (const auto& [page, count] : users) {
    EXPECT_GE(pool.num_users(page), count);
    EXPECT_LE(pool.num_users(page), count + 1);  // the cache is one more
  }
  EXPECT_EQ(static_cast<int>(users.size()) + cache.num_available(), pool.num_pages());
  EXPECT_LE(cache.num_kept_pages(), trace.cache_pages);
}

// A disk that has some of the pages, and loses some of them when they are asked for.
class FakeSource : public PageSource {
 public:
  FakeSource(Contents& contents, std::mt19937& rng) : contents_(contents), rng_(rng) {}
  bool has(Sequence& s, int64_t index) override {
    const uint64_t key = key_of(s, index);
    return key % 3 != 0 && !lost_.contains(key);
  }
  bool load(Sequence& s, int64_t index, int32_t page) override {
    auto& at = contents_[static_cast<size_t>(page)];
    at.assign(at.size(), 12345);
    if (rng_() % 4 == 0) {
      lost_.insert(key_of(s, index));
      return false;
    }
    at = page_of(s, index);
    return true;
  }

 private:
  static uint64_t key_of(const Sequence& s, int64_t index) { return page_of(s, index).back() >> 5; }
  Contents& contents_;
  std::mt19937& rng_;
  std::set<uint64_t> lost_;
};

// Runs the plan as a model would, and checks that every earlier position holds what it should, and
// that a sequence's state (if there are any) is that behind the last of them.
void run_plan(const StepPlan& plan, Contents& contents, std::span<uint64_t> states = {}) {
  for (const StateCopy& copy : plan.state_copies)
    states[static_cast<size_t>(copy.to)] = states[static_cast<size_t>(copy.from)];
  for (const PageCopy& copy : plan.copies)
    contents[static_cast<size_t>(copy.to)] = contents[static_cast<size_t>(copy.from)];
  for (const PlannedWindow& w : plan.windows) {
    const Sequence& s = *w.sequence;
    uint64_t expected = s.cache_salt.empty() ? 7 : 8;
    ASSERT_EQ(s.state_slot >= 0, !states.empty());
    uint64_t* const state = states.empty() ? nullptr : &states[static_cast<size_t>(s.state_slot)];
    for (int64_t p = 0; p < w.start + w.num_rows; ++p) {
      expected = history(expected, s.token_ids[static_cast<size_t>(p)]);
      const auto page =
          static_cast<size_t>(s.holding.pages[static_cast<size_t>(p / kPagePositions)]);
      uint64_t& at = contents[page][static_cast<size_t>(p % kPagePositions)];
      if (p >= w.start) at = expected;
      ASSERT_EQ(at, expected) << "position " << p << " of sequence " << s.arrival;
      if (state != nullptr && p == w.start - 1) {
        ASSERT_EQ(*state, expected) << "state at " << p << " of sequence " << s.arrival;
      }
    }
    if (state != nullptr) *state = expected;
  }
}

void check_plan(const Trace& trace, const StepPlan& plan, const PromptRows& allowed) {
  std::set<const Sequence*> seen;
  int64_t prompt_rows = 0, later_rows = 0, rows = 0, scored_rows = 0;
  for (const PlannedWindow& w : plan.windows) {
    const Sequence& s = *w.sequence;
    EXPECT_TRUE(seen.insert(&s).second) << "two windows of a sequence";
    EXPECT_FALSE(s.paused);
    EXPECT_EQ(w.start, s.num_cached_tokens);
    EXPECT_GE(w.num_rows, 1);
    EXPECT_LE(w.num_rows, s.num_uncached_tokens());
    EXPECT_LE(w.start + w.num_rows, static_cast<int64_t>(s.holding.pages.size()) * kPagePositions);
    if (s.num_uncached_tokens() > 1) prompt_rows += w.num_rows;
    const bool at_beginning = w.start - s.num_reused_tokens < trace.config.burst_tokens;
    if (s.num_uncached_tokens() > 1 && !at_beginning) later_rows += w.num_rows;
    const bool reaches_end = w.num_rows == s.num_uncached_tokens();
    EXPECT_EQ(w.num_logit_rows, s.all_logits ? w.num_rows : reaches_end ? 1 : 0);
    if (s.all_logits) scored_rows += w.num_rows;
    rows += w.num_rows;
  }
  EXPECT_LE(prompt_rows, std::max(allowed.steady, allowed.burst));
  EXPECT_LE(later_rows, allowed.steady);
  EXPECT_LE(scored_rows, trace.config.max_logit_rows);
  EXPECT_LE(plan.windows.size(), static_cast<size_t>(trace.config.max_sequences));
  EXPECT_EQ(rows, plan.num_rows);
}

void simulate(Trace& trace, std::mt19937& rng) {
  BlockPool pool(trace.num_pages);
  StateSlots slots(trace.num_states);
  StateSlots* const used_slots = trace.num_states > 0 ? &slots : nullptr;
  std::vector<uint64_t> states(static_cast<size_t>(trace.num_states), 4711);
  PrefixCache cache(pool, trace.cache_pages, kPagePositions, used_slots);
  Contents contents(static_cast<size_t>(trace.num_pages), std::vector<uint64_t>(kPagePositions));
  FakeSource source(contents, rng);
  Scheduler scheduler(trace.config, cache, trace.num_pages, trace.has_source ? &source : nullptr,
                      used_slots);
  size_t num_ended = 0;
  const bool has_pauses =
      std::any_of(trace.requests.begin(), trace.requests.end(),
                  [](const auto& request) { return request->pause_until > request->pause_from; });
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
        EXPECT_TRUE(r.sequence.holding.pages.empty());
        r.ended = true;
        ++num_ended;
      }
      if (r.added && !r.ended && !r.sequence.paused && oldest == nullptr) oldest = &r;
    }
    const bool oldest_has_pages = oldest != nullptr && !oldest->sequence.holding.pages.empty();
    const auto some_rows = [&] {
      return 1 + static_cast<int64_t>(rng() % static_cast<uint64_t>(trace.config.prefill_chunk));
    };
    PromptRows allowed{trace.config.prefill_chunk, trace.config.prefill_chunk};
    if (trace.varies_rows) allowed = {some_rows(), some_rows()};
    const StepPlan plan = scheduler.next_step(allowed);
    check_plan(trace, plan, allowed);
    check_pages(trace, pool, cache);
    run_plan(plan, contents, states);
    if (plan.windows.empty()) {
      if (plan.did_something()) continue;
      EXPECT_EQ(oldest, nullptr) << "somebody could run and nothing does";
      continue;
    }
    // The oldest that may run always gets on: no starvation. (One that was paused while it waited
    // takes no pages from younger ones that run, but is the next to enter.)
    const bool oldest_runs =
        std::any_of(plan.windows.begin(), plan.windows.end(),
                    [&](const PlannedWindow& w) { return w.sequence == &oldest->sequence; });
    const bool loads = plan.num_loaded_pages > 0;
    EXPECT_TRUE(oldest_runs || loads || (has_pauses && !oldest_has_pages));
    scheduler.commit(plan);
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
  EXPECT_EQ(cache.num_available(), pool.num_pages());
  EXPECT_EQ(slots.num_available(), trace.num_states);
  EXPECT_EQ(scheduler.num_running() + scheduler.num_waiting(), 0);
}

TEST(Scheduler, RandomTraces) {
  std::mt19937 rng(2026);
  for (int i = 0; i < 3000; ++i) {
    Trace trace = random_trace(rng);
    simulate(trace, rng);
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

TEST(Scheduler, AShortPromptDoesNotWaitForALongOne) {
  BlockPool pool(100);
  PrefixCache cache(pool, 0, kPagePositions);
  Scheduler scheduler({.max_sequences = 4, .prefill_chunk = 512, .burst_tokens = 64}, cache, 100);
  const auto old = sequence_of(0, 4000), young = sequence_of(1, 100);
  scheduler.add(*old);
  for (int i = 0; i < 2; ++i) scheduler.commit(scheduler.next_step({8, 40}));
  EXPECT_EQ(old->num_cached_tokens, 80);  // its beginning went in bursts
  scheduler.add(*young);
  for (int i = 0; i < 3; ++i) scheduler.commit(scheduler.next_step({8, 40}));
  EXPECT_EQ(old->num_cached_tokens, 80 + 3 * 8);
  EXPECT_EQ(young->num_cached_tokens, 2 * 32);
}

TEST(Scheduler, RunningRepliesGetARowInEveryStep) {
  BlockPool pool(100);
  PrefixCache cache(pool, 0, kPagePositions);
  Scheduler scheduler({.max_sequences = 4, .prefill_chunk = 10}, cache, 100);
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
  PrefixCache cache(pool, 0, kPagePositions);
  Scheduler scheduler({.max_sequences = 4, .prefill_chunk = 10}, cache, 100);
  auto a = sequence_of(0, 4), b = sequence_of(1, 4), c = sequence_of(2, 4);
  for (auto* s : {a.get(), b.get(), c.get()}) scheduler.add(*s);
  const StepPlan plan = scheduler.next_step();
  ASSERT_EQ(plan.windows.size(), 3u);
  EXPECT_EQ(plan.windows[2].num_rows, 2);
}

TEST(Scheduler, OutOfPagesPreemptsTheNewestAndResumesIt) {
  BlockPool pool(2);
  PrefixCache cache(pool, 0, kPagePositions);
  Scheduler scheduler({.max_sequences = 4, .prefill_chunk = 1000}, cache, 2);
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
  EXPECT_TRUE(b->holding.pages.empty());
  EXPECT_EQ(b->num_cached_tokens, 0);
  EXPECT_GE(b->token_ids.size(), 256u);  // sampled ids are kept
  EXPECT_EQ(a->holding.pages.size(), 2u);
  scheduler.remove(*a);
  const StepPlan plan = scheduler.next_step();
  ASSERT_EQ(plan.windows.size(), 1u);
  EXPECT_EQ(plan.windows[0].sequence, b.get());
  EXPECT_EQ(plan.windows[0].num_rows, static_cast<int64_t>(b->token_ids.size()));
  scheduler.remove(*b);
  EXPECT_EQ(pool.num_free(), 2);
}

// Runs whatever there is to run until every sequence's prompt is computed; the rows that took.
int64_t compute_prompts(Scheduler& scheduler, const std::vector<Sequence*>& sequences) {
  int64_t num_rows = 0;
  const auto is_open = [](const Sequence* s) { return s->num_uncached_tokens() > 0; };
  while (std::any_of(sequences.begin(), sequences.end(), is_open)) {
    const StepPlan plan = scheduler.next_step();
    if (plan.windows.empty()) ADD_FAILURE() << "nothing runs";
    if (plan.windows.empty()) return num_rows;
    scheduler.commit(plan);
    num_rows += plan.num_rows;
  }
  return num_rows;
}

std::unique_ptr<Sequence> text_of(int64_t arrival, size_t num_common, size_t num_own) {
  auto sequence = sequence_of(arrival, num_common + num_own);
  for (size_t i = 0; i < num_own; ++i)
    sequence->token_ids[num_common + i] = static_cast<int32_t>(10 + arrival);
  return sequence;
}

TEST(Scheduler, PromptsThatBeginAlikeAtTheSameTimeAreComputedOnce) {
  BlockPool pool(100);
  PrefixCache cache(pool, 100, kPagePositions);
  Scheduler scheduler({.max_sequences = 8, .prefill_chunk = 100}, cache, 100);
  std::vector<std::unique_ptr<Sequence>> owned;
  std::vector<Sequence*> all;
  for (int64_t i = 0; i < 5; ++i) {
    owned.push_back(text_of(i, 600, 20));  // two full pages and 88 of the third
    all.push_back(owned.back().get());
    scheduler.add(*all.back());
  }
  EXPECT_EQ(compute_prompts(scheduler, all), 620 + 4 * 20);
  EXPECT_EQ(all[0]->num_reused_tokens, 0);
  for (size_t i = 1; i < 5; ++i) EXPECT_EQ(all[i]->num_reused_tokens, 600) << i;
  EXPECT_EQ(all[1]->holding.pages[1], all[4]->holding.pages[1]);
  EXPECT_NE(all[1]->holding.pages[2], all[4]->holding.pages[2]);
}

TEST(Scheduler, ALaterTurnComputesOnlyWhatIsNew) {
  BlockPool pool(100);
  PrefixCache cache(pool, 100, kPagePositions);
  Scheduler scheduler({.max_sequences = 2, .prefill_chunk = 512}, cache, 100);
  std::vector<int32_t> text;
  for (int turn = 0; turn < 40; ++turn) {
    for (int i = 0; i < 100; ++i) text.push_back(turn * 1000 + i);
    auto sequence = sequence_of(turn, 1);
    sequence->token_ids = text;
    sequence->num_prompt_tokens = static_cast<int64_t>(text.size());
    scheduler.add(*sequence);
    int64_t known = 100 * turn;
    if (known % kPagePositions < PrefixCache::kMinCopiedTokens) known -= known % kPagePositions;
    EXPECT_EQ(compute_prompts(scheduler, {sequence.get()}), 100 * (turn + 1) - known);
    EXPECT_EQ(sequence->num_reused_tokens, known);
    for (int i = 0; i < 30; ++i) {  // the reply; its last token is not computed
      sequence->token_ids.push_back(-turn);
      text.push_back(-turn);
      if (i < 29) scheduler.commit(scheduler.next_step());
    }
    scheduler.remove(*sequence);
    text.resize(text.size() - 30);  // and is not part of the next turn
  }
}

// A conversation of a model that thinks: its thoughts are not part of the next turn.
TEST(Scheduler, WithStatesALaterTurnComputesOnlyWhatIsNew) {
  BlockPool pool(100);
  StateSlots states(6);
  PrefixCache cache(pool, 100, kPagePositions, &states);
  Scheduler scheduler({.max_sequences = 2, .prefill_chunk = 512}, cache, 100, nullptr, &states);
  std::vector<int32_t> text;
  int64_t cut = 0;
  for (int turn = 0; turn < 40; ++turn) {
    const int64_t known = cut;
    for (int i = 0; i < 100; ++i) text.push_back(turn * 1000 + i);
    cut = static_cast<int64_t>(text.size());
    auto sequence = sequence_of(turn, 1);
    sequence->token_ids = text;
    for (const int32_t opening : {-7, -8}) sequence->token_ids.push_back(opening);
    sequence->num_prompt_tokens = cut + 2;
    sequence->state_cuts = {cut};
    scheduler.add(*sequence);
    EXPECT_EQ(compute_prompts(scheduler, {sequence.get()}), cut + 2 - known);
    EXPECT_EQ(sequence->num_reused_tokens, known);
    for (int i = 0; i < 30; ++i) {
      sequence->token_ids.push_back(-turn);
      if (i < 29) scheduler.commit(scheduler.next_step());
    }
    scheduler.remove(*sequence);
  }
  EXPECT_EQ(states.num_available(), 6);
}

TEST(Scheduler, WithStatesPromptsThatBeginAlikeWaitForTheirCut) {
  BlockPool pool(100);
  StateSlots states(8);
  PrefixCache cache(pool, 100, kPagePositions, &states);
  Scheduler scheduler({.max_sequences = 8, .prefill_chunk = 100}, cache, 100, nullptr, &states);
  std::vector<std::unique_ptr<Sequence>> owned;
  std::vector<Sequence*> all;
  for (int64_t i = 0; i < 5; ++i) {
    owned.push_back(text_of(i, 600, 20));
    owned.back()->state_cuts = {600};
    all.push_back(owned.back().get());
    scheduler.add(*all.back());
  }
  EXPECT_EQ(compute_prompts(scheduler, all), 620 + 4 * 20);
  EXPECT_EQ(states.num_available(), 3);  // a snapshot is one of them
}

TEST(Scheduler, WithStatesAnEarlierCutDoesNotEndTheSharing) {
  BlockPool pool(100);
  StateSlots states(10);
  PrefixCache cache(pool, 100, kPagePositions, &states);
  Scheduler scheduler({.max_sequences = 8, .prefill_chunk = 100}, cache, 100, nullptr, &states);
  std::vector<std::unique_ptr<Sequence>> owned;
  std::vector<Sequence*> all;
  for (int64_t i = 0; i < 5; ++i) {
    owned.push_back(text_of(i, 600, 20));
    owned.back()->state_cuts = {100, 600};
    all.push_back(owned.back().get());
    scheduler.add(*all.back());
  }
  EXPECT_EQ(compute_prompts(scheduler, all), 620 + 4 * 20);
  EXPECT_EQ(states.num_evictions(), 0);
}

TEST(Scheduler, WithStatesPagesInUseAreSharedInATightPool) {
  BlockPool pool(10);
  StateSlots states(4);
  PrefixCache cache(pool, 10, kPagePositions, &states);
  Scheduler scheduler({.max_sequences = 2, .prefill_chunk = 10000}, cache, 10, nullptr, &states);
  auto a = text_of(0, 6 * kPagePositions, 100), b = text_of(1, 6 * kPagePositions, 100);
  a->state_cuts = {6 * kPagePositions};
  scheduler.add(*a);
  compute_prompts(scheduler, {a.get()});
  scheduler.add(*b);
  EXPECT_EQ(compute_prompts(scheduler, {b.get()}), 100);
}

TEST(Scheduler, WithStatesTheSystemMessageOutlivesAConversation) {
  BlockPool pool(100);
  StateSlots states(12);
  PrefixCache cache(pool, 100, kPagePositions, &states);
  Scheduler scheduler({.max_sequences = 1, .prefill_chunk = 10000}, cache, 100, nullptr, &states);
  std::vector<int32_t> text(100, 1);
  for (int turn = 0; turn < 12; ++turn) {
    for (int i = 0; i < 100; ++i) text.push_back(turn * 1000 + i);
    auto sequence = sequence_of(turn, 1);
    sequence->token_ids = text;
    sequence->token_ids.push_back(-7);
    sequence->num_prompt_tokens = static_cast<int64_t>(text.size()) + 1;
    sequence->state_cuts = {100, static_cast<int64_t>(text.size())};
    scheduler.add(*sequence);
    compute_prompts(scheduler, {sequence.get()});
    scheduler.remove(*sequence);
  }
  auto other = text_of(20, 100, 100);
  scheduler.add(*other);
  EXPECT_EQ(compute_prompts(scheduler, {other.get()}), 100);
}

TEST(Scheduler, WithStatesAShortFollowUpIsOneStep) {
  BlockPool pool(100);
  StateSlots states(12);
  PrefixCache cache(pool, 100, kPagePositions, &states);
  Scheduler scheduler({.max_sequences = 1, .prefill_chunk = 10000}, cache, 100, nullptr, &states);
  auto first = text_of(0, 600, 0), second = text_of(1, 600, 40);
  scheduler.add(*first);
  compute_prompts(scheduler, {first.get()});
  scheduler.remove(*first);
  second->state_cuts = {635};
  scheduler.add(*second);
  EXPECT_EQ(scheduler.next_step().num_rows, 40);
}

TEST(Scheduler, TheLastTokenIsComputedInAnyCase) {
  for (const size_t length : {size_t{1}, size_t{16}, size_t{256}, size_t{257}, size_t{512}}) {
    BlockPool pool(10);
    PrefixCache cache(pool, 10, kPagePositions);
    Scheduler scheduler({.max_sequences = 2, .prefill_chunk = 512}, cache, 10);
    for (int64_t i = 0; i < 3; ++i) {
      auto sequence = sequence_of(i, length);
      scheduler.add(*sequence);
      const StepPlan plan = scheduler.next_step();
      ASSERT_EQ(plan.windows.size(), 1u);
      EXPECT_EQ(plan.windows[0].num_logit_rows, 1);
      scheduler.commit(plan);
      EXPECT_EQ(sequence->num_uncached_tokens(), 0);
      const auto reused = static_cast<size_t>(sequence->num_reused_tokens);
      if (i > 0 && length > PrefixCache::kMinCopiedTokens)
        EXPECT_EQ(reused, length - 1);
      else
        EXPECT_EQ(reused, 0u);
      scheduler.remove(*sequence);
    }
  }
}

TEST(Scheduler, SaltsAndOptOutShareNothing) {
  BlockPool pool(10);
  PrefixCache cache(pool, 10, kPagePositions);
  Scheduler scheduler({.max_sequences = 2, .prefill_chunk = 512}, cache, 10);
  int64_t arrival = 0;
  const auto rows = [&](const char* salt, bool use) {
    auto sequence = sequence_of(arrival++, 300);
    sequence->cache_salt = salt;
    sequence->use_prefix_cache = use;
    scheduler.add(*sequence);
    const int64_t num_rows = compute_prompts(scheduler, {sequence.get()});
    scheduler.remove(*sequence);
    return num_rows;
  };
  EXPECT_EQ(rows("", false), 300);
  EXPECT_EQ(rows("", true), 300);
  EXPECT_EQ(rows("", true), 1);
  EXPECT_EQ(rows("", false), 300);
  EXPECT_EQ(rows("key a", true), 300);
  EXPECT_EQ(rows("key b", true), 300);
  EXPECT_EQ(rows("key a", true), 1);
}

// Has the first pages of one sequence.
class SourceOfOne : public PageSource {
 public:
  SourceOfOne(Contents& contents, const Sequence& sequence) : contents_(contents), of_(sequence) {}
  bool has(Sequence& s, int64_t) override { return &s == &of_; }
  bool load(Sequence& s, int64_t index, int32_t page) override {
    contents_[static_cast<size_t>(page)] = page_of(s, index);
    return true;
  }

 private:
  Contents& contents_;
  const Sequence& of_;
};

// The kept tail that one prompt has copied is dropped when a longer page of another one is loaded
// in the same step: what takes its place must not be there before the copy is done.
TEST(Scheduler, LoadedPagesAreNotCopiedInstead) {
  constexpr int kNumPages = 8;
  BlockPool pool(kNumPages);
  PrefixCache cache(pool, kNumPages, kPagePositions);
  Contents contents(kNumPages, std::vector<uint64_t>(kPagePositions));
  const auto a = text_of(0, 200, 0), b = text_of(1, 200, 100), c = text_of(2, 200, 400);
  SourceOfOne source(contents, *c);
  Scheduler scheduler({.max_sequences = 4, .prefill_chunk = 1000}, cache, kNumPages, &source);
  const auto run = [&] {
    const StepPlan plan = scheduler.next_step();
    run_plan(plan, contents);
    scheduler.commit(plan);
    return plan;
  };
  scheduler.add(*a);
  run();
  scheduler.remove(*a);  // its tail is kept
  scheduler.add(*b);
  scheduler.add(*c);
  const StepPlan first = run();
  EXPECT_EQ(first.copies.size(), 1u);
  EXPECT_EQ(b->num_uncached_tokens(), 0);
  EXPECT_EQ(b->num_reused_tokens, 200);
  EXPECT_EQ(first.num_loaded_pages, 0);
  EXPECT_EQ(run().num_loaded_pages, 2);
  EXPECT_EQ(c->num_uncached_tokens(), 0);
  EXPECT_EQ(c->num_reused_tokens, 2 * kPagePositions);
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
