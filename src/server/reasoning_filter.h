// ReasoningFilter: splits a reply into what the model thinks and what it says, at <think> and
// </think>. A pure byte machine: what comes out does not depend on how the text was cut, and no
// part of a tag is ever let through.
#pragma once

#include <string>
#include <string_view>

namespace invar::server {

class ReasoningFilter {
 public:
  struct Piece {
    std::string reasoning, content;
    size_t content_begin = 0;  // in the whole text
  };

  // `starts_inside`: the prompt ends in an open <think>.
  explicit ReasoningFilter(bool starts_inside)
      : state_(starts_inside ? State::kOpening : State::kStart) {}

  Piece push(std::string_view text);
  Piece finish();  // what was held back; nothing follows
  bool inside() const { return state_ == State::kOpening || state_ == State::kInside; }

 private:
  enum class State {
    kStart,    // nothing but white space and perhaps a part of <think>
    kOpening,  // behind <think>, where one line feed is left out
    kInside,
    kClosing,  // behind </think>, where line feeds are left out
    kContent
  };
  void drop(size_t num_bytes);

  State state_;
  std::string held_;
  size_t held_begin_ = 0;  // in the whole text
};

// Whether the reply to this rendered prompt begins inside reasoning.
bool ends_in_open_reasoning(std::string_view prompt);

}  // namespace invar::server
