#include "server/reasoning_filter.h"

#include <algorithm>

namespace invar::server {
namespace {

constexpr std::string_view kOpen = "<think>", kClose = "</think>";
constexpr std::string_view kSpace = " \t\r\n";

// How many bytes at the end of `text` may be the beginning of "\n</think>" or "</think>".
size_t possible_close(std::string_view text) {
  for (size_t length = std::min(text.size(), kClose.size() - 1) + 1; length-- > 0;) {
    if (!text.ends_with(kClose.substr(0, length))) continue;
    const bool has_line_feed = text.size() > length && text[text.size() - length - 1] == '\n';
    return length + (has_line_feed ? 1 : 0);
  }
  return 0;
}

}  // namespace

bool ends_in_open_reasoning(std::string_view prompt) {
  const size_t open = prompt.rfind(kOpen), close = prompt.rfind(kClose);
  return open != std::string_view::npos && (close == std::string_view::npos || close < open);
}

ReasoningFilter::Piece ReasoningFilter::push(std::string_view text) {
  Piece piece;
  held_ += text;
  if (state_ == State::kStart) {
    const size_t begin = std::min(held_.find_first_not_of(kSpace), held_.size());
    const std::string_view rest = std::string_view(held_).substr(begin);
    if (rest.size() < kOpen.size() && kOpen.starts_with(rest)) return piece;
    if (rest.starts_with(kOpen)) {
      drop(begin + kOpen.size());
      state_ = State::kOpening;
    } else {
      state_ = State::kContent;
    }
  }
  if (state_ == State::kOpening && !held_.empty()) {
    if (held_[0] == '\n') drop(1);
    state_ = State::kInside;
  }
  if (state_ == State::kInside) {
    const size_t close = held_.find(kClose);
    if (close == std::string::npos) {
      const size_t length = held_.size() - possible_close(held_);
      piece.reasoning = held_.substr(0, length);
      drop(length);
      return piece;
    }
    piece.reasoning = held_.substr(0, close);
    if (piece.reasoning.ends_with('\n')) piece.reasoning.pop_back();
    drop(close + kClose.size());
    state_ = State::kClosing;
  }
  if (state_ == State::kClosing) {
    drop(std::min(held_.find_first_not_of('\n'), held_.size()));
    if (!held_.empty()) state_ = State::kContent;
  }
  if (state_ == State::kContent) {
    piece.content = held_;
    piece.content_begin = held_begin_;
    drop(held_.size());
  }
  return piece;
}

void ReasoningFilter::drop(size_t num_bytes) {
  held_.erase(0, num_bytes);
  held_begin_ += num_bytes;
}

ReasoningFilter::Piece ReasoningFilter::finish() {
  Piece piece;
  if (state_ == State::kStart) {
    piece.content = held_;
    piece.content_begin = held_begin_;
  }
  if (inside()) {
    piece.reasoning = std::move(held_);
    if (piece.reasoning == "\n") piece.reasoning.clear();
  }
  drop(held_.size());
  return piece;
}

}  // namespace invar::server
