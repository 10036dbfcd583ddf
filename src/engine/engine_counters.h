// EngineCounters: what Engine::stats() reads. The engine thread (and callers' threads, where said)
// adds; everything is atomic, so that nobody who looks waits for a step.
#pragma once

#include <atomic>
#include <chrono>
#include <span>

#include "base/histogram.h"
#include "engine/reply.h"
#include "engine/scheduler.h"
#include "invar/stats.h"

namespace invar {

class EngineCounters {
 public:
  // `context`: the longest sequence there can be.
  EngineCounters(int num_pages, int64_t context);

  // ---- One step, in this order
  void begin_step(const StepPlan& plan);
  void count_prompt(const Sequence& sequence);  // its rows ran
  // It has sampled the last `num_tokens` of its ids, maybe none.
  void count_tokens(const Sequence& sequence, size_t num_tokens);
  // `has_run` false: the device is still at it, and the next step's time has the rest of it.
  void end_step(double seconds, bool has_run);
  void count_end(const Sequence& sequence);  // ended, for whatever reason

  // ---- Now
  void show_load(const Scheduler& scheduler, const PrefixCache& cache, const BlockPool& pool);
  // Of two threads, one at a time. `submitted`: of the oldest that waits.
  void show_waiting(int num_waiting, Clock::time_point submitted);
  void show_arrival(Clock::time_point submitted);
  void show_work(bool has_work) { has_work_ = has_work; }

  // From callers' threads.
  void count_constraint(double seconds) { constraint_seconds_.observe(seconds); }

  std::atomic<int64_t>& operations() { return num_operations_; }
  int64_t num_steps() const { return num_steps_; }
  int64_t num_preemptions() const { return num_preemptions_; }
  int num_used_pages() const { return num_used_pages_; }
  int num_kept_pages() const { return num_kept_pages_; }

  EngineStats stats() const;

 private:
  const int num_pages_;

  std::atomic<int> num_running_ = 0, num_waiting_ = 0;
  std::atomic<int64_t> oldest_waiting_ns_ = 0;  // on the steady clock; 0: none
  std::atomic<int> num_used_pages_ = 0, num_cached_pages_ = 0, num_kept_pages_ = 0;
  std::atomic<bool> has_work_ = false;

  std::atomic<int64_t> num_operations_ = 0, num_steps_ = 0, num_windows_ = 0;
  std::atomic<int64_t> num_preemptions_ = 0, num_evictions_ = 0, max_context_ = 0;
  std::atomic<int64_t> num_bad_logits_ = 0;
  std::atomic<double> prefill_seconds_ = 0, decode_seconds_ = 0;
  Histogram step_tokens_;
  std::array<Histogram, kStepKinds.size()> step_seconds_;

  std::atomic<int64_t> num_prompt_tokens_ = 0, num_cached_prompt_tokens_ = 0;
  std::atomic<int64_t> num_generated_tokens_ = 0, num_looked_up_tokens_ = 0;
  Histogram time_to_first_token_, time_between_tokens_;
  Histogram time_per_token_, total_time_, queue_time_, prefill_time_, decode_time_, inference_time_;
  Histogram prompt_tokens_, generated_tokens_, max_tokens_;
  Histogram constraint_seconds_;

  // Of the step that runs.
  int64_t step_prefill_rows_ = 0, step_decode_rows_ = 0;
};

}  // namespace invar
