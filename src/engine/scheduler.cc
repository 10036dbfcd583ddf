// (4) The scheduler: before it engine.cc (3), after it model_runner.cc (5).
//
// A decode is a sequence with one uncached token, so prefill and decode need no two paths. Decodes
// take no part of the prompt budget: every running reply gets its row in every step, and a step has
// at most max_sequences + prefill_chunk rows. That bounds the time between two tokens of a reply
// however long the prompts beside it are.
//
// Nothing starves: the oldest sequence that is not paused may take the pages of all others, and the
// pool holds at least one full sequence.
#include "engine/scheduler.h"

#include <algorithm>

#include "backend/backend.h"
#include "base/check.h"

namespace invar {
namespace {

int64_t pages_for(int64_t num_positions) {
  return (num_positions + kPagePositions - 1) / kPagePositions;
}

void insert_by_arrival(std::vector<Sequence*>& list, Sequence& sequence) {
  const auto later = [](const Sequence* a, const Sequence* b) { return a->arrival < b->arrival; };
  list.insert(std::upper_bound(list.begin(), list.end(), &sequence, later), &sequence);
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, BlockPool& pool)
    : config_(config), pool_(pool) {
  INVAR_CHECK(config.max_sequences >= 1 && config.prefill_chunk >= 1 && config.max_logit_rows >= 1,
              "a step without rows");
}

void Scheduler::add(Sequence& sequence) {
  INVAR_CHECK(!sequence.token_ids.empty() && sequence.pages.empty(), "not a new sequence");
  insert_by_arrival(waiting_, sequence);
}

void Scheduler::remove(Sequence& sequence) {
  release_pages(sequence);
  std::erase(running_, &sequence);
  std::erase(waiting_, &sequence);
}

StepPlan Scheduler::next_step() {
  StepPlan plan;
  RowBudget left{config_.prefill_chunk, config_.max_logit_rows};
  const auto is_full = [&] {
    return plan.windows.size() >= static_cast<size_t>(config_.max_sequences);
  };
  const auto add_window = [&](Sequence& sequence, int64_t num_rows) {
    if (sequence.num_uncached_tokens() > 1) left.prompt -= num_rows;
    if (sequence.all_logits) left.logits -= num_rows;
    const bool reaches_end = num_rows == sequence.num_uncached_tokens();
    const int64_t num_logit_rows = sequence.all_logits ? num_rows : (reaches_end ? 1 : 0);
    plan.windows.push_back({&sequence, sequence.num_cached_tokens, num_rows, num_logit_rows});
    plan.num_rows += num_rows;
  };

  bool preempted = false;
  for (size_t i = 0; i < running_.size() && !is_full(); ++i) {
    Sequence& sequence = *running_[i];
    const int64_t num_rows = rows_wanted(sequence, left);
    if (num_rows == 0) continue;
    bool reserved = reserve(sequence, num_rows);
    while (!reserved) {  // out of pages: the newest gives its own back and waits
      const size_t index = victim();
      const bool is_self = running_[index] == &sequence;
      preempt(index);
      preempted = true;
      if (is_self) break;
      if (index < i) --i;  // only a paused one, which has no window in this plan
      reserved = reserve(sequence, num_rows);
    }
    if (reserved) add_window(sequence, num_rows);
  }

  int64_t num_active =
      std::count_if(running_.begin(), running_.end(), [](const Sequence* s) { return !s->paused; });
  for (size_t i = 0; !preempted && i < waiting_.size() && !is_full();) {
    if (num_active >= config_.max_sequences || left.prompt == 0) break;
    Sequence& sequence = *waiting_[i];
    if (sequence.paused) {
      ++i;
      continue;
    }
    const int64_t num_rows = rows_wanted(sequence, left);
    if (num_rows == 0) break;  // others take all logit rows of this step
    // Paused sequences keep their pages only as long as nobody else needs them.
    while (!fits_beside_running(sequence) && !running_.empty() && running_[victim()]->paused)
      preempt(victim());
    if (!fits_beside_running(sequence) || !reserve(sequence, num_rows)) break;
    // preempt() may have put older paused sequences in front of this one.
    std::erase(waiting_, &sequence);
    insert_by_arrival(running_, sequence);
    add_window(sequence, num_rows);
    ++num_active;
    i = 0;
  }
  return plan;
}

void Scheduler::commit(const StepPlan& plan) {
  for (const PlannedWindow& window : plan.windows)
    window.sequence->num_cached_tokens = window.start + window.num_rows;
}

int64_t Scheduler::rows_wanted(const Sequence& sequence, const RowBudget& left) {
  const int64_t uncached = sequence.num_uncached_tokens();
  if (sequence.paused || uncached == 0) return 0;
  const int64_t rows = uncached == 1 ? 1 : std::min(uncached, left.prompt);
  return sequence.all_logits ? std::min(rows, left.logits) : rows;
}

bool Scheduler::reserve(Sequence& sequence, int64_t num_rows) {
  const int64_t needed = pages_for(sequence.num_cached_tokens + num_rows);
  INVAR_CHECK(needed <= pool_.num_pages(), "a sequence needs %ld pages, the pool has %d",
              long{needed}, pool_.num_pages());
  if (needed - static_cast<int64_t>(sequence.pages.size()) > pool_.num_free()) return false;
  while (static_cast<int64_t>(sequence.pages.size()) < needed)
    sequence.pages.push_back(*pool_.allocate());
  return true;
}

// A newcomer enters when all of its tokens and the next page of every running sequence fit.
// Otherwise it would often be preempted half way, and the work on its prompt be lost.
bool Scheduler::fits_beside_running(const Sequence& sequence) const {
  if (running_.empty()) return true;
  const int64_t needed = pages_for(static_cast<int64_t>(sequence.token_ids.size()) + 1);
  int64_t promised = 0;  // what running prompts have yet to take, and one page each to grow
  for (const Sequence* other : running_)
    promised += std::max<int64_t>(0, pages_for(static_cast<int64_t>(other->token_ids.size()) + 1) -
                                         static_cast<int64_t>(other->pages.size()));
  return needed + promised <= pool_.num_free();
}

void Scheduler::release_pages(Sequence& sequence) {
  for (const int32_t page : sequence.pages) pool_.release(page);
  sequence.pages.clear();
  sequence.num_cached_tokens = 0;
}

void Scheduler::preempt(size_t index) {
  Sequence& sequence = *running_[index];
  release_pages(sequence);
  ++sequence.num_preemptions;
  running_.erase(running_.begin() + static_cast<ptrdiff_t>(index));
  insert_by_arrival(waiting_, sequence);
}

// The newest paused sequence, else the newest.
size_t Scheduler::victim() const {
  for (size_t i = running_.size(); i-- > 0;)
    if (running_[i]->paused) return i;
  return running_.size() - 1;
}

}  // namespace invar
