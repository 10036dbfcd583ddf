#include "engine/engine_counters.h"

#include <algorithm>
#include <utility>

namespace invar {
namespace {

// Edges of specs/api.md section 15, by its letters.
std::vector<double> edges_a() {
  return {.001, .005, .01, .02, .04, .06, .08, .1, .25, .5,  .75,
          1,    2.5,  5,   7.5, 10,  20,  40,  80, 160, 640, 2560};
}
std::vector<double> edges_b() {
  return {.0005, .001, .0025, .005, .01, .025, .05, .075, .1, .15, .2, .3,
          .4,    .5,   .75,   1,    2.5, 5,    7.5, 10,   20, 40,  80};
}
std::vector<double> edges_c() {
  return {.3, .5, .8, 1,  1.5, 2,   2.5, 5,   10,   15,  20,
          30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680};
}
std::vector<double> edges_e() {
  std::vector<double> edges = {1, 8};
  for (int rows = 16; rows <= 16384; rows *= 2) edges.push_back(rows);
  return edges;
}

double seconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double>(to - from).count();
}

bool is_prompt_window(const PlannedWindow& window) {
  // More than one row beyond the prompt: what was computed before a preemption, and is again.
  return window.start < window.sequence->num_prompt_tokens || window.num_rows > 1;
}

}  // namespace

EngineCounters::EngineCounters(int num_pages, int64_t context)
    : num_pages_(num_pages),
      step_tokens_(edges_e()),
      step_seconds_{Histogram(edges_b()), Histogram(edges_b()), Histogram(edges_b())},
      time_to_first_token_(edges_a()),
      time_between_tokens_(edges_b()),
      time_per_token_(edges_b()),
      total_time_(edges_c()),
      queue_time_(edges_c()),
      prefill_time_(edges_c()),
      decode_time_(edges_c()),
      inference_time_(edges_c()),
      prompt_tokens_(count_edges(context)),
      generated_tokens_(count_edges(context)),
      max_tokens_(count_edges(context)),
      constraint_seconds_(edges_b()) {}

void EngineCounters::begin_step(const StepPlan& plan) {
  step_prefill_rows_ = step_decode_rows_ = 0;
  for (const PlannedWindow& window : plan.windows)
    (is_prompt_window(window) ? step_prefill_rows_ : step_decode_rows_) += window.num_rows;
  num_windows_ += static_cast<int64_t>(plan.windows.size());
}

void EngineCounters::count_prompt(const Sequence& sequence) {
  Reply& reply = *sequence.reply;
  if (!reply.counted) return;
  Reply::Counted& counted = reply.counts;
  if (!std::exchange(counted.looked_up, true) && sequence.use_prefix_cache)
    num_looked_up_tokens_ += sequence.num_prompt_tokens;
  num_cached_prompt_tokens_ += sequence.num_reused_tokens - counted.num_cached;
  counted.num_cached = sequence.num_reused_tokens;
  // What is computed a second time, after a preemption, counts once.
  const int64_t computed =
      std::min(sequence.num_cached_tokens, sequence.num_prompt_tokens) - sequence.num_reused_tokens;
  if (computed <= counted.num_computed) return;
  num_prompt_tokens_ += computed - counted.num_computed;
  counted.num_computed = computed;
}

void EngineCounters::count_tokens(const Sequence& sequence, size_t num_tokens) {
  const int64_t context = static_cast<int64_t>(sequence.token_ids.size());
  if (context > max_context_) max_context_ = context;
  Reply& reply = *sequence.reply;
  if (num_tokens == 0 || !reply.counted) return;
  num_generated_tokens_ += static_cast<int64_t>(num_tokens);
  const Clock::time_point now = Clock::now();
  size_t num_gaps = num_tokens;
  if (reply.counts.last_token == Clock::time_point()) {
    time_to_first_token_.observe(seconds(reply.submitted, now));
    reply.counts.first_token = reply.counts.last_token = now;
    --num_gaps;
  }
  // Tokens of one step share the time since the step before.
  for (size_t i = 0; i < num_gaps; ++i)
    time_between_tokens_.observe(seconds(reply.counts.last_token, now) /
                                 static_cast<double>(num_tokens));
  reply.counts.last_token = now;
}

void EngineCounters::end_step(double step_seconds, bool has_run) {
  ++num_steps_;
  const int64_t num_rows = step_prefill_rows_ + step_decode_rows_;
  step_tokens_.observe(static_cast<double>(num_rows));
  const StepKind kind = step_decode_rows_ == 0    ? StepKind::kPrefill
                        : step_prefill_rows_ == 0 ? StepKind::kDecode
                                                  : StepKind::kMixed;
  if (has_run) step_seconds_[static_cast<size_t>(kind)].observe(step_seconds);
  const double prefill_share =
      static_cast<double>(step_prefill_rows_) / static_cast<double>(std::max<int64_t>(num_rows, 1));
  prefill_seconds_ = prefill_seconds_ + step_seconds * prefill_share;
  decode_seconds_ = decode_seconds_ + step_seconds * (1 - prefill_share);
}

void EngineCounters::count_end(const Sequence& sequence) {
  const Reply& reply = *sequence.reply;
  if (reply.had_bad_logits) ++num_bad_logits_;
  if (!reply.counted) return;
  const Clock::time_point now = Clock::now(), zero;
  const Reply::Counted& counts = reply.counts;
  const int64_t num_generated =
      static_cast<int64_t>(sequence.token_ids.size()) - sequence.num_prompt_tokens;
  total_time_.observe(seconds(reply.submitted, now));
  queue_time_.observe(seconds(reply.submitted, reply.is_scheduled() ? reply.scheduled : now));
  if (reply.is_scheduled()) {
    const Clock::time_point prefilled = counts.first_token == zero ? now : counts.first_token;
    prefill_time_.observe(seconds(reply.scheduled, prefilled));
    inference_time_.observe(seconds(reply.scheduled, now));
  }
  if (counts.first_token != zero) {
    decode_time_.observe(seconds(counts.first_token, now));
    if (num_generated > 1)
      time_per_token_.observe(seconds(counts.first_token, counts.last_token) /
                              static_cast<double>(num_generated - 1));
  }
  prompt_tokens_.observe(static_cast<double>(sequence.num_prompt_tokens));
  generated_tokens_.observe(static_cast<double>(num_generated));
  max_tokens_.observe(static_cast<double>(reply.max_tokens));
}

void EngineCounters::show_load(const Scheduler& scheduler, const PrefixCache& cache,
                               const BlockPool& pool) {
  num_running_ = scheduler.num_running();
  num_preemptions_ = scheduler.num_preemptions();
  num_evictions_ = cache.num_evictions();
  num_used_pages_ = pool.num_pages() - cache.num_available();
  num_cached_pages_ = cache.num_available() - pool.num_free();
  num_kept_pages_ = cache.num_kept_pages();
}

void EngineCounters::show_waiting(int num_waiting, Clock::time_point submitted) {
  num_waiting_ = num_waiting;
  oldest_waiting_ns_ =
      num_waiting == 0
          ? 0
          : std::chrono::duration_cast<std::chrono::nanoseconds>(submitted.time_since_epoch())
                .count();
}

void EngineCounters::show_arrival(Clock::time_point submitted) {
  if (num_waiting_ == 0)
    show_waiting(1, submitted);
  else
    ++num_waiting_;
}

EngineStats EngineCounters::stats() const {
  EngineStats s;
  s.num_running = num_running_;
  s.num_waiting = num_waiting_;
  const std::chrono::nanoseconds oldest(oldest_waiting_ns_);
  if (oldest.count() != 0)
    s.oldest_waiting_seconds = seconds(
        Clock::time_point(std::chrono::duration_cast<Clock::duration>(oldest)), Clock::now());
  s.num_pages = num_pages_;
  s.num_used_pages = num_used_pages_;
  s.num_cached_pages = num_cached_pages_;
  s.num_kept_pages = num_kept_pages_;
  s.has_work = has_work_;
  s.num_operations = num_operations_;
  s.num_steps = num_steps_;
  s.num_windows = num_windows_;
  s.num_preemptions = num_preemptions_;
  s.num_evictions = num_evictions_;
  s.max_context = max_context_;
  s.num_bad_logits = num_bad_logits_;
  s.prefill_seconds = prefill_seconds_;
  s.decode_seconds = decode_seconds_;
  s.step_tokens = step_tokens_.data();
  for (size_t i = 0; i < s.step_seconds.size(); ++i) s.step_seconds[i] = step_seconds_[i].data();
  s.num_prompt_tokens = num_prompt_tokens_;
  s.num_cached_prompt_tokens = num_cached_prompt_tokens_;
  s.num_generated_tokens = num_generated_tokens_;
  s.num_looked_up_tokens = num_looked_up_tokens_;
  s.time_to_first_token = time_to_first_token_.data();
  s.time_between_tokens = time_between_tokens_.data();
  s.time_per_token = time_per_token_.data();
  s.total_time = total_time_.data();
  s.queue_time = queue_time_.data();
  s.prefill_time = prefill_time_.data();
  s.decode_time = decode_time_.data();
  s.inference_time = inference_time_.data();
  s.prompt_tokens = prompt_tokens_.data();
  s.generated_tokens = generated_tokens_.data();
  s.max_tokens = max_tokens_.data();
  s.constraint_seconds = constraint_seconds_.data();
  return s;
}

}  // namespace invar
