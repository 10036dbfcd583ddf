// (4) The scheduler: before it engine.cc (3), after it model_runner.cc (5).
//
// A decode is a sequence with one uncached token, so prefill and decode need no two paths. Decodes
// take no part of the prompt budget: every running reply gets its row in every step, and a step has
// at most max_sequences + prefill_chunk rows. That bounds the time between two tokens of a reply
// however long the prompts beside it are; prompt_pace.h lowers it further while replies run.
//
// Nothing starves: the oldest sequence that is not paused may take the pages of all others, and the
// pool holds at least one full sequence.
#include "engine/scheduler.h"

#include <algorithm>
#include <new>

#include "backend/backend.h"
#include "base/check.h"
#include "engine/state_cuts.h"

namespace invar {
namespace {

// A prompt waits for an older one beside it that computes at least so many of its next tokens.
constexpr int64_t kMinSharedTokens = 32;

// Pages that a step may load: each takes a few milliseconds, in which running replies wait.
constexpr int kMaxLoadedPages = 4;

int64_t pages_for(int64_t num_positions) {
  return (num_positions + kPagePositions - 1) / kPagePositions;
}

void insert_by_arrival(std::vector<Sequence*>& list, Sequence& sequence) {
  const auto later = [](const Sequence* a, const Sequence* b) { return a->arrival < b->arrival; };
  list.insert(std::upper_bound(list.begin(), list.end(), &sequence, later), &sequence);
}

bool stands_at_page(const Sequence& sequence) {
  const PrefixCache::Holding& holding = sequence.holding;
  return holding.node != nullptr && holding.depth == static_cast<int64_t>(holding.pages.size()) &&
         sequence.num_cached_tokens == holding.depth * kPagePositions;
}

int64_t reusable_end(const Sequence& sequence) {
  return static_cast<int64_t>(sequence.token_ids.size()) - 1;
}

void count_reused(Sequence& sequence, int64_t num_cached) {
  if (sequence.num_preemptions == 0)
    sequence.num_reused_tokens += num_cached - sequence.num_cached_tokens;
  sequence.num_cached_tokens = num_cached;
}

}  // namespace

Scheduler::Scheduler(const SchedulerConfig& config, PrefixCache& cache, int num_pages,
                     PageSource* source, StateSlots* states)
    : config_(config), cache_(cache), num_pages_(num_pages), source_(source), states_(states) {
  INVAR_CHECK(config.max_sequences >= 1 && config.prefill_chunk >= 1 && config.max_logit_rows >= 1,
              "a step without rows");
  running_.reserve(static_cast<size_t>(config.max_waiting));
  waiting_.reserve(static_cast<size_t>(config.max_waiting));
  INVAR_CHECK(source == nullptr || states == nullptr, "the source has no states");
}

void Scheduler::reset() {
  for (std::vector<Sequence*>* list : {&running_, &waiting_}) {
    for (Sequence* sequence : *list) {
      sequence->holding.pages.clear();
      sequence->holding.node = nullptr;
      sequence->holding.depth = 0;
      sequence->state_slot = -1;
      sequence->num_cached_tokens = 0;
      ++sequence->num_preemptions;
    }
    list->clear();
  }
  due_copies_.clear();
  cache_.reset();
}

void Scheduler::add(Sequence& sequence) {
  INVAR_CHECK(!sequence.token_ids.empty() && sequence.holding.pages.empty(), "not a new sequence");
  insert_by_arrival(waiting_, sequence);
}

void Scheduler::remove(Sequence& sequence) {
  give_pages(sequence);
  std::erase(running_, &sequence);
  std::erase(waiting_, &sequence);
}

StepPlan Scheduler::next_step(const PromptRows& rows) {
  StepPlan plan;
  plan.state_copies.swap(due_copies_);
  const auto allowed = [&](int64_t n) { return std::clamp<int64_t>(n, 1, config_.prefill_chunk); };
  RowBudget left{allowed(rows.steady), allowed(rows.burst), config_.max_logit_rows};
  const auto is_full = [&] {
    return plan.windows.size() >= static_cast<size_t>(config_.max_sequences);
  };
  const auto add_window = [&](Sequence& sequence, int64_t num_rows) {
    if (sequence.num_uncached_tokens() > 1) {
      left.prompt = std::max<int64_t>(0, left.prompt - num_rows);
      left.burst = std::max<int64_t>(0, left.burst - num_rows);
    }
    if (sequence.all_logits) left.logits -= num_rows;
    const bool reaches_end = num_rows == sequence.num_uncached_tokens();
    const int64_t num_logit_rows = sequence.all_logits ? num_rows : (reaches_end ? 1 : 0);
    plan.windows.push_back({&sequence, sequence.num_cached_tokens, num_rows, num_logit_rows});
    plan.num_rows += num_rows;
  };

  bool preempted = false;
  for (size_t i = 0; i < running_.size() && !is_full(); ++i) {
    Sequence& sequence = *running_[i];
    if (sequence.paused) continue;
    if (const auto hit = find_state(sequence)) take_state(sequence, *hit, plan);
    reuse_full_pages(sequence, plan);
    if (waits_for_prefix(sequence) || waits_for_source(sequence, plan)) continue;
    reuse_tail(sequence, plan);
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
    if (num_active >= config_.max_sequences || std::max(left.prompt, left.burst) == 0) break;
    Sequence& sequence = *waiting_[i];
    if (sequence.paused) {
      ++i;
      continue;
    }
    if (rows_wanted(sequence, left) == 0) break;  // others take all logit rows of this step
    const auto hit = find_state(sequence);
    reuse_full_pages(sequence, plan);
    // Paused sequences keep their pages only as long as nobody else needs them.
    while (!fits_beside_running(sequence) && !running_.empty() && running_[victim()]->paused)
      preempt(victim());
    if (!fits_beside_running(sequence)) {
      give_pages(sequence);
      if (sequence.num_preemptions == 0) sequence.num_reused_tokens = 0;
      break;
    }
    // It runs from now on. preempt() may have put older paused sequences in front of this one.
    std::erase(waiting_, &sequence);
    insert_by_arrival(running_, sequence);
    if (states_ != nullptr) sequence.state_slot = *states_->allocate();
    if (hit) take_state(sequence, *hit, plan);
    if (!waits_for_prefix(sequence) && !waits_for_source(sequence, plan)) {
      reuse_tail(sequence, plan);
      const int64_t num_rows = rows_wanted(sequence, left);
      // What it found in the cache may have brought it past the rows of a burst.
      if (num_rows > 0) {
        INVAR_CHECK(reserve(sequence, num_rows), "no pages for a sequence that fits");
        add_window(sequence, num_rows);
      }
    }
    ++num_active;
    i = 0;
  }
  return plan;
}

void Scheduler::commit(const StepPlan& plan) {
  for (const PlannedWindow& window : plan.windows) {
    Sequence& sequence = *window.sequence;
    sequence.num_cached_tokens = window.start + window.num_rows;
    // Others may wait for what this prompt has computed; a reply's tail is kept when it ends.
    cache_.publish(sequence.holding, sequence.token_ids, sequence.num_cached_tokens,
                   sequence.num_cached_tokens <= sequence.num_prompt_tokens);
    keep_state(sequence);
  }
}

bool Scheduler::is_at_beginning(const Sequence& sequence) const {
  return sequence.num_cached_tokens - sequence.num_reused_tokens < config_.burst_tokens;
}

int Scheduler::num_decoding() const {
  return static_cast<int>(std::count_if(running_.begin(), running_.end(), [](const Sequence* s) {
    return !s->paused && s->num_uncached_tokens() == 1;
  }));
}

int64_t Scheduler::rows_wanted(const Sequence& sequence, const RowBudget& left) const {
  const int64_t uncached = sequence.num_uncached_tokens();
  if (sequence.paused || uncached == 0) return 0;
  const int64_t prompt =
      is_at_beginning(sequence) ? std::max(left.prompt, left.burst) : left.prompt;
  int64_t rows = uncached == 1 ? 1 : std::min(uncached, prompt);
  // A window ends where the state is to be kept.
  if (states_ != nullptr)
    for (const int64_t cut : sequence.state_cuts)
      if (cut > sequence.num_cached_tokens) rows = std::min(rows, cut - sequence.num_cached_tokens);
  return sequence.all_logits ? std::min(rows, left.logits) : rows;
}

bool Scheduler::reserve(Sequence& sequence, int64_t num_rows) {
  const int64_t needed = pages_for(sequence.num_cached_tokens + num_rows);
  INVAR_CHECK(needed <= num_pages_, "a sequence needs %ld pages, the pool has %ld", long{needed},
              long{num_pages_});
  std::vector<int32_t>& pages = sequence.holding.pages;
  if (needed - static_cast<int64_t>(pages.size()) > cache_.num_available()) return false;
  while (static_cast<int64_t>(pages.size()) < needed) pages.push_back(*cache_.allocate());
  return true;
}

// A newcomer enters when all of its tokens and the next page of every running sequence fit.
// Otherwise it would often be preempted half way, and the work on its prompt be lost.
bool Scheduler::fits_beside_running(const Sequence& sequence) const {
  if (running_.empty()) return true;
  if (states_ != nullptr && states_->num_available() == 0) return false;
  const int64_t needed = pages_for(static_cast<int64_t>(sequence.token_ids.size()) + 1);
  int64_t promised = 0;  // what running prompts have yet to take, and one page each to grow
  for (const Sequence* other : running_)
    promised += std::max<int64_t>(0, pages_for(static_cast<int64_t>(other->token_ids.size()) + 1) -
                                         static_cast<int64_t>(other->holding.pages.size()));
  return needed - static_cast<int64_t>(sequence.holding.pages.size()) + promised <=
         cache_.num_available();
}

// ---- The prefix cache
//
// A prompt looks for its next page whenever it stands at the beginning of one: what was kept, or
// what a sequence beside it has computed meanwhile. Its last token is computed in any case, for
// its logits.

bool Scheduler::looks_for_pages(Sequence& sequence) {
  if (!sequence.use_prefix_cache || sequence.all_logits) return false;
  if (sequence.holding.node == nullptr) {
    if (sequence.num_cached_tokens > 0 || !sequence.holding.pages.empty()) return false;
    cache_.attach(sequence.holding, sequence.cache_salt);
  }
  return sequence.num_uncached_tokens() > 1 && stands_at_page(sequence);
}

void Scheduler::reuse_full_pages(Sequence& sequence, StepPlan& plan) {
  if (states_ != nullptr || !looks_for_pages(sequence)) return;
  cache_.adopt(sequence.holding, sequence.token_ids, reusable_end(sequence));
  count_reused(sequence, sequence.holding.depth * kPagePositions);
  load_pages(sequence, plan);
}

bool Scheduler::may_load(const StepPlan& plan) {
  return plan.num_loaded_pages < kMaxLoadedPages && plan.copies.empty();
}

// What the cache does not have the source may.
void Scheduler::load_pages(Sequence& sequence, StepPlan& plan) {
  while (may_load(plan) && has_page_to_load(sequence)) {
    // The last page is left to whoever runs.
    if (cache_.num_available() < 2) return;
    PrefixCache::Holding& holding = sequence.holding;
    const int64_t depth = holding.depth;
    const int32_t page = *cache_.allocate();
    holding.pages.push_back(page);
    if (!source_->load(sequence, depth, page)) {
      holding.pages.pop_back();
      cache_.give_back(page);
      return;
    }
    ++plan.num_loaded_pages;
    count_reused(sequence, (depth + 1) * kPagePositions);
    cache_.publish(holding, sequence.token_ids, sequence.num_cached_tokens, false);
  }
}

// The source has the page that comes next.
bool Scheduler::has_page_to_load(Sequence& sequence) const {
  if (source_ == nullptr || sequence.all_logits || !stands_at_page(sequence)) return false;
  const int64_t depth = sequence.holding.depth;
  return (depth + 1) * kPagePositions <= reusable_end(sequence) && source_->has(sequence, depth);
}

// There is more to load than this step may: rather the next step than to compute it.
bool Scheduler::waits_for_source(Sequence& sequence, const StepPlan& plan) const {
  return !may_load(plan) && has_page_to_load(sequence);
}

// An older sequence is about to compute a good part of the page that this one needs next: let it.
bool Scheduler::waits_for_prefix(const Sequence& sequence) const {
  if (states_ != nullptr) return waits_for_state(sequence, sequence.num_cached_tokens);
  if (sequence.num_uncached_tokens() <= 1 || !stands_at_page(sequence)) return false;
  const auto at = static_cast<size_t>(sequence.num_cached_tokens);
  for (const Sequence* other : running_) {
    if (other->arrival >= sequence.arrival) break;
    if (other->paused || other->num_uncached_tokens() <= 1 ||
        other->holding.node != sequence.holding.node)
      continue;
    // What it will leave behind: its prompt up to the end of this page.
    const size_t end =
        std::min({at + kPagePositions, other->token_ids.size(), sequence.token_ids.size()});
    size_t common = at;
    while (common < end && other->token_ids[common] == sequence.token_ids[common]) ++common;
    const bool is_ahead = other->num_cached_tokens < static_cast<int64_t>(common);
    if (is_ahead && static_cast<int64_t>(common - at) >= kMinSharedTokens) return true;
  }
  return false;
}

// A page that agrees with the next tokens for a while is copied, and the copy written on.
void Scheduler::reuse_tail(Sequence& sequence, StepPlan& plan) {
  if (states_ != nullptr) return;
  if (sequence.num_uncached_tokens() <= 1 || !stands_at_page(sequence)) return;
  const std::optional<PrefixCache::Copy> copy =
      cache_.find_copy(sequence.holding, sequence.token_ids, reusable_end(sequence));
  if (!copy) return;
  // The page copied from may be the one that gives way: nothing was lost but the copy.
  if (cache_.num_available() < 2) return;
  const int32_t page = *cache_.allocate();
  plan.copies.push_back({copy->page, page});
  sequence.holding.pages.push_back(page);
  count_reused(sequence, sequence.num_cached_tokens + copy->num_tokens);
}

// ---- States of recurrent layers
//
// Pages alone do not let a text go on from a position: its state must have been kept there. So only
// the positions with snapshots count, and a sequence takes the pages before the furthest of them.

// With the pages before it; its other half is take_state(), once the sequence has a slot.
std::optional<PrefixCache::StateHit> Scheduler::find_state(Sequence& sequence) {
  if (states_ == nullptr || !looks_for_pages(sequence)) return std::nullopt;
  const auto hit = cache_.find_state(sequence.holding, sequence.token_ids, reusable_end(sequence));
  if (!hit) return std::nullopt;
  // From amid a page it would not look again.
  if (waits_for_state(sequence, hit->num_tokens)) return std::nullopt;
  // Pages that nobody uses now become its own, and one more is written on.
  if (hit->num_idle_pages + 1 > cache_.num_available()) return std::nullopt;
  const int64_t num_full = hit->num_tokens / kPagePositions;
  cache_.adopt(sequence.holding, sequence.token_ids, num_full * kPagePositions);
  INVAR_CHECK(sequence.holding.depth == num_full, "a state without the pages before it");
  if (hit->page >= 0) cache_.touch(hit->page);
  return hit;
}

void Scheduler::take_state(Sequence& sequence, const PrefixCache::StateHit& hit, StepPlan& plan) {
  // The newcomer's slot may be the very one: the snapshot gave way to it.
  if (hit.slot != sequence.state_slot) plan.state_copies.push_back({hit.slot, sequence.state_slot});
  if (hit.page >= 0) {
    const int32_t page = *cache_.allocate();
    if (page != hit.page) plan.copies.push_back({hit.page, page});
    sequence.holding.pages.push_back(page);
  }
  count_reused(sequence, hit.num_tokens);
  // The step that would end there costs more than it may save.
  std::erase_if(sequence.state_cuts,
                [&](int64_t cut) { return cut < hit.num_tokens + kLeastStateTokens; });
}

// Behind a step: what stands at a cut is kept, as a copy, since the sequence goes on in its slot.
void Scheduler::keep_state(Sequence& sequence) {
  if (states_ == nullptr || !cache_.enabled() || sequence.holding.node == nullptr ||
      !std::binary_search(sequence.state_cuts.begin(), sequence.state_cuts.end(),
                          sequence.num_cached_tokens) ||
      !cache_.wants_state(sequence.holding, sequence.token_ids, sequence.num_cached_tokens))
    return;
  const std::optional<int32_t> slot = states_->allocate();
  if (!slot) return;  // sequences use all of them
  if (cache_.keep_state(sequence.holding, sequence.token_ids, sequence.num_cached_tokens, *slot))
    due_copies_.push_back({sequence.state_slot, *slot});
  else
    states_->release(*slot);
}

// An older sequence is on its way to a cut that lies in the text of this one, too.
// `from`: where this one could go on already.
bool Scheduler::waits_for_state(const Sequence& sequence, int64_t from) const {
  if (!cache_.enabled() || states_->num_available() == 0 || sequence.holding.node == nullptr ||
      sequence.num_uncached_tokens() <= 1 || !stands_at_page(sequence))
    return false;
  for (const Sequence* other : running_) {
    if (other->arrival >= sequence.arrival) break;
    if (other->paused || other->num_uncached_tokens() <= 1 || other->holding.node == nullptr ||
        other->cache_salt != sequence.cache_salt)
      continue;
    // The cache had no room for its pages, and will have none for its state.
    if (other->holding.depth < other->num_cached_tokens / kPagePositions) continue;
    for (const int64_t cut : other->state_cuts) {
      if (cut > reusable_end(sequence)) break;
      if (cut <= other->num_cached_tokens || cut < from + kMinSharedTokens) continue;
      if (std::equal(sequence.token_ids.begin(), sequence.token_ids.begin() + cut,
                     other->token_ids.begin()))
        return true;
      break;  // later ones lie behind the same difference
    }
  }
  return false;
}

// Its pages stay in the cache, or go back to the pool; so does its state. Works without memory.
void Scheduler::give_pages(Sequence& sequence) {
  bool is_kept = false;
  try {
    cache_.publish(sequence.holding, sequence.token_ids, sequence.num_cached_tokens, true);
    is_kept = sequence.state_slot >= 0 && sequence.num_cached_tokens > 0 &&
              cache_.keep_state(sequence.holding, sequence.token_ids, sequence.num_cached_tokens,
                                sequence.state_slot);
  } catch (const std::bad_alloc&) {  // then they are not kept
  }
  if (sequence.state_slot >= 0 && !is_kept) states_->release(sequence.state_slot);
  sequence.state_slot = -1;
  cache_.release(sequence.holding);
  sequence.num_cached_tokens = 0;
}

void Scheduler::preempt(size_t index) {
  Sequence& sequence = *running_[index];
  give_pages(sequence);
  ++sequence.num_preemptions;
  ++num_preemptions_;
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
