#include "engine/reply_text.h"

#include <algorithm>
#include <utility>

namespace invar {

using Kind = ReplyPart::Kind;

ReplyText::ReplyText(const Tokenizer& tokenizer, const StopRules& rules,
                     std::unique_ptr<ReplyParser> parser)
    : detokenizer_(tokenizer),
      parser_(std::move(parser)),
      includes_stop_(rules.include),
      stops_in_reasoning_(rules.in_reasoning),
      content_watch_{StopFilter(rules.texts)},
      reasoning_watch_{StopFilter(rules.texts)} {}

void ReplyText::push(int32_t id, bool look_for_stops, TokenEvent& event) {
  const bool was_inside = in_reasoning();
  event.text_begin = num_bytes_;
  const std::string text = detokenizer_.push(id);
  event.text_end = num_bytes_ + std::max(text.size(), size_t{detokenizer_.holds_back()});
  take(text, look_for_stops, event);
  event.is_reasoning = was_inside || in_reasoning();
}

void ReplyText::finish(bool look_for_stops, TokenEvent& event) {
  take(detokenizer_.finish(), look_for_stops, event);
  if (parser_ != nullptr)
    for (ReplyPart& part : parser_->finish()) take_part(std::move(part), look_for_stops, event);
  release(Kind::kReasoning, reasoning_watch_, event);
  release(Kind::kContent, content_watch_, event);
}

void ReplyText::take(std::string_view text, bool look_for_stops, TokenEvent& event) {
  if (text.empty()) return;
  const size_t begin = std::exchange(num_bytes_, num_bytes_ + text.size());
  if (parser_ == nullptr)
    return take_part({Kind::kContent, std::string(text), begin}, look_for_stops, event);
  for (ReplyPart& part : parser_->push(text)) take_part(std::move(part), look_for_stops, event);
}

void ReplyText::take_part(ReplyPart part, bool look_for_stops, TokenEvent& event) {
  if (stopped()) return;
  const bool is_content = part.kind == Kind::kContent;
  const bool is_watched =
      look_for_stops && (is_content || (part.kind == Kind::kReasoning && stops_in_reasoning_));
  // A stop string ends where another kind of part begins.
  if (!is_watched || part.kind != Kind::kReasoning)
    release(Kind::kReasoning, reasoning_watch_, event);
  if (!is_watched || !is_content || part.begin != content_watch_.end)
    release(Kind::kContent, content_watch_, event);
  if (!is_watched) return deliver(std::move(part), event);
  Watched& watched = is_content ? content_watch_ : reasoning_watch_;
  const size_t begin = part.begin - watched.filter.num_held();
  watched.end = part.begin + part.text.size();
  std::string certain = watched.filter.push(part.text);
  if (watched.filter.stopped()) {
    stop_ = &watched.filter.stop_text();
    if (includes_stop_) certain += *stop_;
  }
  deliver({part.kind, std::move(certain), begin}, event);
}

void ReplyText::release(Kind kind, Watched& watched, TokenEvent& event) {
  std::string held = watched.filter.finish();
  const size_t begin = watched.end - held.size();
  deliver({kind, std::move(held), begin}, event);
}

void ReplyText::deliver(ReplyPart part, TokenEvent& event) {
  if (part.text.empty() && part.kind != Kind::kCallBegin) return;
  if (part.kind == Kind::kContent) content_ += part.text;
  if (parser_ == nullptr) {
    event.text += part.text;
    return;
  }
  const bool joins = !event.parts.empty() && event.parts.back().kind == part.kind &&
                     part.kind != Kind::kCallBegin &&
                     (part.kind != Kind::kContent ||
                      event.parts.back().begin + event.parts.back().text.size() == part.begin);
  if (joins)
    event.parts.back().text += part.text;
  else
    event.parts.push_back(std::move(part));
}

}  // namespace invar
