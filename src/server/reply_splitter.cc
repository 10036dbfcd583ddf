#include "server/reply_splitter.h"

#include <iterator>
#include <string>
#include <utility>

namespace invar::server {

ReplySplitter::ReplySplitter(const SplitRules& rules)
    : reasoning_(rules.reasoning), reasoning_filter_(rules.starts_in_reasoning) {
  if (rules.syntax) tool_filter_ = make_tool_call_filter(*rules.syntax, rules.tools);
}

std::vector<ReplyPart> ReplySplitter::push(std::string_view text) {
  std::vector<ReplyPart> parts;
  const size_t begin = std::exchange(num_bytes_, num_bytes_ + text.size());
  // Where it stays in the content it is followed all the same: reasoning tokens are counted.
  ReasoningFilter::Piece piece = reasoning_filter_.push(text);
  if (reasoning_ != SplitRules::Reasoning::kStays && !piece.reasoning.empty())
    parts.push_back({ReplyPart::Kind::kReasoning, std::move(piece.reasoning)});
  if (reasoning_ == SplitRules::Reasoning::kApart)
    add_content(piece.content, piece.content_begin, parts);
  else
    add_content(text, begin, parts);
  return parts;
}

std::vector<ReplyPart> ReplySplitter::finish() {
  std::vector<ReplyPart> parts;
  ReasoningFilter::Piece piece = reasoning_filter_.finish();
  if (reasoning_ != SplitRules::Reasoning::kStays && !piece.reasoning.empty())
    parts.push_back({ReplyPart::Kind::kReasoning, std::move(piece.reasoning)});
  if (reasoning_ == SplitRules::Reasoning::kApart)
    add_content(piece.content, piece.content_begin, parts);
  if (tool_filter_) {
    std::vector<ReplyPart> rest = tool_filter_->finish();
    std::move(rest.begin(), rest.end(), std::back_inserter(parts));
  }
  return parts;
}

void ReplySplitter::add_content(std::string_view text, size_t begin,
                                std::vector<ReplyPart>& parts) {
  if (text.empty()) return;
  if (!tool_filter_) {
    parts.push_back({ReplyPart::Kind::kContent, std::string(text), begin});
    return;
  }
  std::vector<ReplyPart> found = tool_filter_->push(text, begin);
  std::move(found.begin(), found.end(), std::back_inserter(parts));
}

}  // namespace invar::server
