// (4) What runs in a step: between engine.cc (3), which asks, and model_runner.cc (5), which runs
// the plan. Pure decisions over sequences and free pages: no clock, no device, no I/O, so that
// tests can drive it through thousands of arrival traces.
#pragma once

#include <cstdint>
#include <vector>

#include "cache/prefix_cache.h"
#include "engine/page_source.h"
#include "engine/prompt_pace.h"
#include "engine/sequence.h"

namespace invar {

// New rows of one sequence: tokens [start, start + num_rows).
struct PlannedWindow {
  Sequence* sequence = nullptr;
  int64_t start = 0;
  int64_t num_rows = 0;
  int64_t num_logit_rows = 0;  // the last so many rows have their logits taken
};

// Page `from` is to be copied onto page `to`.
struct PageCopy {
  int32_t from = 0, to = 0;
};

// State slot `from` is to be copied onto slot `to`.
struct StateCopy {
  int32_t from = 0, to = 0;
};

// A page or state that is copied from may give way while the plan is made, and become the target of
// a later copy or a window's page: their order keeps that right. A page of the source is written at
// once, before any copy, so nothing is loaded into a plan that has copies.
struct StepPlan {
  std::vector<PageCopy> copies;         // done in this order before any window runs
  std::vector<StateCopy> state_copies;  // as copies
  std::vector<PlannedWindow> windows;
  int64_t num_rows = 0;
  int num_loaded_pages = 0;  // from the source
  // Without windows: there is more to do at once.
  bool did_something() const {
    return num_loaded_pages > 0 || !copies.empty() || !state_copies.empty();
  }
};

struct SchedulerConfig {
  int max_sequences = 4;        // windows in a step
  int max_waiting = 1024;       // sequences that it has at a time, running ones included
  int64_t prefill_chunk = 512;  // rows a step spends on prompts: bounds the time between two tokens
  int64_t burst_tokens = 512;   // the first so many computed of a prompt may take the burst's rows
  int64_t max_logit_rows = 512;  // of sequences with all_logits in a step; bounds their memory
};

class Scheduler {
 public:
  // A sequence may have at most num_pages pages' worth of positions, so that the oldest one can
  // always end; the cache's pool has that many.
  // `source` may be null: pages that the cache does not have are computed. `states`: the cache's,
  // null for models without recurrent layers; with them there is no source.
  // No more than config.max_waiting sequences are added at a time, so that add() allocates nothing.
  Scheduler(const SchedulerConfig& config, PrefixCache& cache, int num_pages,
            PageSource* source = nullptr, StateSlots* states = nullptr);

  void add(Sequence& sequence);     // waits for its turn
  void remove(Sequence& sequence);  // ended or cancelled, wherever it is; frees its pages

  // Forgets all sequences, takes their pages away and empties the cache, as if nothing had been
  // computed; add() them again. Allocates nothing: for when memory ran out in the middle of a step.
  void reset();

  // Windows of the next step, pages reserved. Without windows (copies are due all the same) nothing
  // can run until something is added, removed or no longer paused. `rows` lowers what the step
  // spends on prompts (config's prefill_chunk at most, at least 1); speed only.
  StepPlan next_step(const PromptRows& rows);
  StepPlan next_step() { return next_step({config_.prefill_chunk, config_.prefill_chunk}); }
  // The step ran: its rows are in the pages, where others may find them.
  void commit(const StepPlan& plan);

  // Sequences that will get their next token in this step, whatever rows of prompts it has.
  int num_decoding() const;
  int num_running() const { return static_cast<int>(running_.size()); }
  int num_waiting() const { return static_cast<int>(waiting_.size()); }
  // That waits longest; null: none does.
  const Sequence* oldest_waiting() const { return waiting_.empty() ? nullptr : waiting_.front(); }
  int64_t num_preemptions() const { return num_preemptions_; }

 private:
  // What a step may still take.
  struct RowBudget {
    int64_t prompt, burst, logits;
  };
  int64_t rows_wanted(const Sequence& sequence, const RowBudget& left) const;
  bool is_at_beginning(const Sequence& sequence) const;
  bool reserve(Sequence& sequence, int64_t num_rows);
  bool fits_beside_running(const Sequence& sequence) const;
  bool looks_for_pages(Sequence& sequence);
  void reuse_full_pages(Sequence& sequence, StepPlan& plan);
  std::optional<PrefixCache::StateHit> find_state(Sequence& sequence);
  void take_state(Sequence& sequence, const PrefixCache::StateHit& hit, StepPlan& plan);
  void keep_state(Sequence& sequence);
  void load_pages(Sequence& sequence, StepPlan& plan);
  static bool may_load(const StepPlan& plan);
  bool has_page_to_load(Sequence& sequence) const;
  bool waits_for_source(Sequence& sequence, const StepPlan& plan) const;
  bool waits_for_prefix(const Sequence& sequence) const;
  bool waits_for_state(const Sequence& sequence, int64_t from) const;
  void reuse_tail(Sequence& sequence, StepPlan& plan);
  void give_pages(Sequence& sequence);
  void preempt(size_t index);
  size_t victim() const;

  SchedulerConfig config_;
  PrefixCache& cache_;
  const int64_t num_pages_;
  PageSource* const source_;
  StateSlots* const states_;
  std::vector<StateCopy> due_copies_;  // of states to keep, behind the step that ran last
  std::vector<Sequence*> running_;     // hold pages; by arrival
  std::vector<Sequence*> waiting_;     // hold none; by arrival
  int64_t num_preemptions_ = 0;
};

}  // namespace invar
