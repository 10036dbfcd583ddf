// Replies: logits -> id -> text -> event, and the end of it.
#include "engine/reply.h"

#include <algorithm>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace invar {
namespace {

double milliseconds(Clock::time_point from, Clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

Sequence::Sequence() = default;
Sequence::~Sequence() = default;

GeneratedReply::GeneratedReply(const ReplySpec& spec, const Vocabulary& vocabulary,
                               std::span<const int32_t> prompt, std::string arithmetic_id,
                               std::shared_ptr<StreamState> stream)
    : spec_(spec),
      vocabulary_(vocabulary),
      sampler_(spec.sampling, vocabulary.sampleable),
      text_(*vocabulary.tokenizer, spec.stop, spec.make_parser ? spec.make_parser() : nullptr),
      stream_(std::move(stream)) {
  sampler_.see_prompt(prompt);
  if (spec.constraint) constraint_.emplace(spec.constraint);
  result_.arithmetic_id = std::move(arithmetic_id);
  result_.num_prompt_tokens = static_cast<int64_t>(prompt.size());
}

void GeneratedReply::note_progress(const Sequence& sequence) {
  result_.num_cached_tokens = sequence.num_reused_tokens;
  if (!spec_.report_progress || !result_.token_ids.empty()) return;
  TokenEvent event;
  PromptProgress& progress = event.progress.emplace();
  progress.num_cached_tokens = sequence.num_reused_tokens;
  progress.num_computed_tokens = std::min(sequence.num_cached_tokens, sequence.num_prompt_tokens);
  progress.queue_ms = milliseconds(submitted, scheduled);
  progress.prefill_ms = milliseconds(scheduled, Clock::now());
  stream_->push(std::move(event));
}

bool GeneratedReply::take(Sequence& sequence, std::span<const float> logits, int64_t vocab_size,
                          SamplerScratch& scratch) {
  result_.num_cached_tokens = sequence.num_reused_tokens;
  if (logits.empty()) {  // in the middle of its prompt
    note_progress(sequence);
    return false;
  }
  INVAR_CHECK(logits.size() == static_cast<size_t>(vocab_size), "more than one row of logits");
  if (spec_.max_tokens == 0) {  // only the prompt was wanted
    finish(FinishReason::kLength);
    return true;
  }
  const Result<int32_t> id = choose(logits, scratch);
  if (!id) {
    had_bad_logits = id.error().code == ErrorCode::kCorrupt;
    finish(FinishReason::kError, id.error());
    return true;
  }
  if (result_.token_ids.empty()) first_token = Clock::now();
  sequence.token_ids.push_back(*id);
  sampler_.see_reply(*id);
  if (constraint_) INVAR_CHECK(constraint_->accept(*id), "token %d was in the mask", *id);
  TokenEvent event;
  event.id = *id;
  if (spec_.top_logprobs >= 0) {
    RowLogprobs row = row_logprobs(logits, *id, spec_.top_logprobs);
    event.logprob = row.chosen;
    event.top_logprobs = std::move(row.top);
  }
  return accept(*id, std::move(event));
}

// The next of the ids that close reasoning once its budget is spent.
std::optional<int32_t> GeneratedReply::forced_id() {
  const ReasoningBudget& budget = spec_.reasoning_budget;
  if (budget.max_tokens < 0 || num_forced_ == budget.closing_ids.size()) return std::nullopt;
  const bool is_spent = text_.in_reasoning() && num_reasoning_tokens_ >= budget.max_tokens;
  if (num_forced_ == 0 && !is_spent) return std::nullopt;
  return budget.closing_ids[num_forced_++];
}

bool GeneratedReply::wants_best() const {
  return !constraint_ && sampler_.takes_best() && spec_.top_logprobs < 0 &&
         spec_.reasoning_budget.max_tokens < 0 && spec_.max_tokens > 0 &&
         static_cast<int64_t>(result_.token_ids.size()) >= spec_.min_tokens;
}

Result<int32_t> GeneratedReply::choose(std::span<const float> logits, SamplerScratch& scratch) {
  if (best_ >= 0) return std::exchange(best_, -1);
  INVAR_TRY_VOID(fill_mask());
  if (const std::optional<int32_t> id = forced_id()) {
    const size_t word = static_cast<size_t>(*id) / 64;
    if (!constraint_ || (word < mask_.size() && (mask_[word] >> (*id % 64) & 1) != 0)) return *id;
    num_forced_ = spec_.reasoning_budget.closing_ids.size();  // it would break the constraint
  }
  return sampler_.draw(logits, result_.token_ids.size(), scratch, mask_);
}

// What the constraint allows, without ends before min_tokens unless nothing else is left.
Result<void> GeneratedReply::fill_mask() {
  mask_.clear();
  if (constraint_) {
    mask_.resize(constraint_->num_mask_words());
    INVAR_TRY_VOID(constraint_->mask(mask_));
  }
  if (static_cast<int64_t>(result_.token_ids.size()) >= spec_.min_tokens) return {};
  std::vector<uint64_t> open = mask_;
  if (!constraint_)
    open.assign((static_cast<size_t>(vocabulary_.sampleable->num_ids) + 63) / 64, ~uint64_t{0});
  for (const std::vector<int32_t>& ids : {vocabulary_.end_ids, spec_.stop_token_ids})
    for (const int32_t id : ids)
      if (const size_t word = static_cast<size_t>(id) / 64; word < open.size())
        open[word] &= ~(uint64_t{1} << (id % 64));
  if (std::any_of(open.begin(), open.end(), [](uint64_t word) { return word != 0; }))
    mask_ = std::move(open);
  return {};
}

bool GeneratedReply::looks_for_stops() const {
  return static_cast<int64_t>(result_.token_ids.size()) > spec_.min_tokens;
}

bool GeneratedReply::is_stop_id(int32_t id) const {
  return std::binary_search(spec_.stop_token_ids.begin(), spec_.stop_token_ids.end(), id);
}

// A reply ends with the first token at which an ending is true: stop string, end token or stop id,
// a constraint that is fulfilled and allows no more, limit.
bool GeneratedReply::accept(int32_t id, TokenEvent event) {
  result_.token_ids.push_back(id);
  const int64_t num_tokens = static_cast<int64_t>(result_.token_ids.size());
  const auto& end_ids = vocabulary_.end_ids;
  const bool is_end = !spec_.ignore_end && std::binary_search(end_ids.begin(), end_ids.end(), id);
  const bool is_stop = is_stop_id(id);
  const bool is_done = is_end || is_stop || (constraint_ && constraint_->is_finished());
  const bool is_last = num_tokens >= spec_.max_tokens;
  if (is_end || is_stop)
    event.text_begin = event.text_end = 0;
  else
    text_.push(id, looks_for_stops(), event);
  if (event.is_reasoning) ++num_reasoning_tokens_;
  if ((is_done || is_last) && !text_.stopped()) text_.finish(looks_for_stops(), event);
  stream_->push(std::move(event));
  if (text_.stopped()) result_.stop_text = text_.stop_text();
  if (!text_.stopped() && !is_done && !is_last) return false;
  if (is_stop && !text_.stopped()) result_.stop_token_id = id;
  finish(text_.stopped() || is_done ? FinishReason::kStop : FinishReason::kLength);
  return true;
}

void GeneratedReply::finish(FinishReason reason, Error error) {
  const Clock::time_point now = Clock::now(), zero;
  // Cancelled or broken: what was held back is in the result alone, no event follows.
  if (TokenEvent none; reason == FinishReason::kCancelled || reason == FinishReason::kError)
    text_.finish(looks_for_stops(), none);
  result_.text = text_.content();
  result_.finish_reason = reason;
  result_.error = std::move(error);
  result_.token_sha = token_sha(result_.token_ids);
  result_.queue_ms = milliseconds(submitted, scheduled == zero ? now : scheduled);
  if (scheduled != zero)
    result_.prefill_ms = milliseconds(scheduled, first_token == zero ? now : first_token);
  if (first_token != zero) result_.decode_ms = milliseconds(first_token, now);
}

// finish(), and where that finds no memory, with less in the result.
void GeneratedReply::end_as(FinishReason reason, Error error) {
  const ErrorCode code = error.code;
  try {
    finish(reason, std::move(error));
  } catch (const std::bad_alloc&) {
    result_.finish_reason = reason;
    result_.error.code = code;
  }
}

void GeneratedReply::stop() {
  end_as(FinishReason::kCancelled);
  publish_end();
}

void GeneratedReply::show(const Sequence& sequence) {
  RequestStatus status;
  status.num_prompt_tokens = sequence.num_prompt_tokens;
  status.num_cached_tokens = sequence.num_reused_tokens;
  status.num_prefilled_tokens = std::min(sequence.num_cached_tokens, sequence.num_prompt_tokens);
  status.num_completion_tokens = static_cast<int64_t>(result_.token_ids.size());
  status.num_kv_pages = static_cast<int>(sequence.holding.pages.size());
  status.num_preemptions = sequence.num_preemptions;
  RequestState state = RequestState::kDecode;
  if (sequence.paused)
    state = RequestState::kPaused;
  else if (!is_scheduled())
    state = RequestState::kQueued;
  else if (status.num_preemptions > 0 && status.num_kv_pages == 0)
    state = RequestState::kPreempted;
  else if (status.num_completion_tokens == 0 || sequence.num_uncached_tokens() > 1)
    state = RequestState::kPrefill;
  if (is_scheduled()) stream_->set_scheduled(scheduled);
  stream_->show(state, status);
}

bool ScoredReply::take(Sequence& sequence, std::span<const float> logits, int64_t vocab_size,
                       SamplerScratch&) {
  const int64_t num_rows = static_cast<int64_t>(logits.size()) / vocab_size;
  const int64_t end = sequence.num_cached_tokens, first = end - num_rows;
  const int64_t num_known = std::clamp<int64_t>(num_delivered_ - first, 0, num_rows);
  if (num_known < num_rows) {
    queue_->push(logits.subspan(static_cast<size_t>(num_known * vocab_size)));
    num_delivered_ = end;
  }
  return sequence.num_uncached_tokens() == 0;
}

}  // namespace invar
