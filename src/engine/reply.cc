// Replies: logits -> id -> text -> event, and the end of it.
#include "engine/reply.h"

#include <algorithm>

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
      detokenizer_(*vocabulary.tokenizer),
      stop_filter_(spec.stop),
      stream_(std::move(stream)) {
  sampler_.see_prompt(prompt);
  if (spec.constraint) {
    constraint_.emplace(spec.constraint);
    mask_.resize(constraint_->num_mask_words());
  }
  result_.arithmetic_id = std::move(arithmetic_id);
  result_.num_prompt_tokens = static_cast<int64_t>(prompt.size());
}

bool GeneratedReply::take(Sequence& sequence, std::span<const float> logits, int64_t vocab_size,
                          SamplerScratch& scratch) {
  result_.num_cached_tokens = sequence.num_reused_tokens;
  if (logits.empty()) return false;  // in the middle of its prompt
  INVAR_CHECK(logits.size() == static_cast<size_t>(vocab_size), "more than one row of logits");
  const Result<void> masked = constraint_ ? constraint_->mask(mask_) : Result<void>();
  const Result<int32_t> id =
      masked ? sampler_.draw(logits, result_.token_ids.size(), scratch, mask_) : masked.error();
  if (!id) {
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

// A reply ends with the first token at which an ending is true: stop string, end token, a
// constraint that is fulfilled and allows no more, limit.
bool GeneratedReply::accept(int32_t id, TokenEvent event) {
  result_.token_ids.push_back(id);
  const auto& end_ids = vocabulary_.end_ids;
  const bool is_end = !spec_.ignore_end && std::binary_search(end_ids.begin(), end_ids.end(), id);
  const bool is_done = is_end || (constraint_ && constraint_->is_finished());
  const bool is_last = static_cast<int64_t>(result_.token_ids.size()) >= spec_.max_tokens;
  if (!is_end) event.text = stop_filter_.push(detokenizer_.push(id));
  if ((is_done || is_last) && !stop_filter_.stopped()) event.text += flush_text();
  result_.text += event.text;
  stream_->push(std::move(event));
  if (stop_filter_.stopped()) result_.stop_text = stop_filter_.stop_text();
  if (!stop_filter_.stopped() && !is_done && !is_last) return false;
  finish(stop_filter_.stopped() || is_done ? FinishReason::kStop : FinishReason::kLength);
  return true;
}

// What detokenizer and stop filter held back; it is certain now that nothing follows.
std::string GeneratedReply::flush_text() {
  std::string text = stop_filter_.push(detokenizer_.finish());
  if (!stop_filter_.stopped()) text += stop_filter_.finish();
  return text;
}

void GeneratedReply::finish(FinishReason reason, Error error) {
  const Clock::time_point now = Clock::now(), zero;
  // Cancelled or broken: what was held back is delivered in the result, no event follows.
  if (reason == FinishReason::kCancelled || reason == FinishReason::kError)
    result_.text += flush_text();
  result_.finish_reason = reason;
  result_.error = std::move(error);
  result_.token_sha = token_sha(result_.token_ids);
  result_.queue_ms = milliseconds(submitted, scheduled == zero ? now : scheduled);
  if (scheduled != zero)
    result_.prefill_ms = milliseconds(scheduled, first_token == zero ? now : first_token);
  if (first_token != zero) result_.decode_ms = milliseconds(first_token, now);
}

void GeneratedReply::stop() {
  finish(FinishReason::kCancelled);
  publish_end();
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
