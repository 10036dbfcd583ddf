// PromptPace: how many rows of prompts a step may have beside running replies, so that these go on
// at a steady pace. It learns what steps cost from the steps themselves. Speed only: how a prompt
// is cut never changes a token. Knows no clock.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace invar {

// Rows that a step may spend on prompts.
struct PromptRows {
  int64_t steady = 0;  // on any
  int64_t burst = 0;   // in all, when some are at their beginning: short prompts shall not wait
};

class PromptPace {
 public:
  // A step with `max_rows` of prompt is the largest. Beside replies a step shall take at most
  // `slowdown` times as long as one without prompts; 0: no such bound.
  PromptPace(int64_t max_rows, double slowdown);

  // For a step in which `num_replies` sequences get their next token.
  PromptRows rows(int64_t num_replies) const;
  // What a step of these rows took.
  void note(int64_t num_replies, int64_t num_prompt_rows, double seconds);

 private:
  double reply_step_seconds(int64_t num_replies) const;

  static constexpr size_t kMaxReplies = 64;  // beyond, costs are those of so many
  const int64_t max_rows_;
  const double slowdown_;
  std::array<double, kMaxReplies + 1> reply_steps_ =
      {};                   // seconds by number of replies; 0: unknown
  double row_seconds_ = 0;  // of one more row of prompt; 0: unknown
};

}  // namespace invar
