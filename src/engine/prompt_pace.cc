#include "engine/prompt_pace.h"

#include <algorithm>

namespace invar {
namespace {

constexpr int64_t kBurstRows = 128;  // a short prompt in a few steps, each a hiccup that is bounded
constexpr int64_t kUnknownRows = 16;  // before anything was measured
constexpr double kMargin = 0.9;       // of the time that the slowdown leaves

// New measurements move an average by so much. Steps that took longer than usual count less: other
// programs delay a step now and then, none makes it faster.
constexpr double kFaster = 0.5, kSlower = 0.1;

void learn(double& average, double value) {
  if (average == 0)
    average = value;
  else
    average += (value - average) * (value < average ? kFaster : kSlower);
}

}  // namespace

PromptPace::PromptPace(int64_t max_rows, double slowdown)
    : max_rows_(max_rows), slowdown_(slowdown) {}

PromptRows PromptPace::rows(int64_t num_replies) const {
  if (num_replies == 0 || slowdown_ <= 0) return {max_rows_, max_rows_};
  const int64_t burst = std::min(kBurstRows, max_rows_);
  const double step = reply_step_seconds(num_replies);
  if (step == 0 || row_seconds_ == 0) return {std::min(kUnknownRows, max_rows_), burst};
  const double affordable = (slowdown_ - 1) * kMargin * step / row_seconds_;
  const int64_t steady =
      std::clamp(static_cast<int64_t>(std::min(affordable, static_cast<double>(max_rows_))),
                 int64_t{1}, max_rows_);
  return {steady, std::max(steady, burst)};
}

void PromptPace::note(int64_t num_replies, int64_t num_prompt_rows, double seconds) {
  if (num_prompt_rows == 0) {
    if (num_replies > 0)
      learn(reply_steps_[std::min(static_cast<size_t>(num_replies), kMaxReplies)], seconds);
    return;
  }
  // What the rows added; alone they also pay for reading the weights.
  const double rest = seconds - reply_step_seconds(num_replies);
  if (num_replies == 0 && row_seconds_ != 0) return;
  const double floor = seconds * 0.05;  // the replies' own part cannot have been all of it
  const double row = std::max(rest, floor) / static_cast<double>(num_prompt_rows);
  // Both ways alike: too low a guess hurts the replies, too high a one the prompt.
  row_seconds_ = row_seconds_ == 0 ? row : row_seconds_ + 0.2 * (row - row_seconds_);
}

// Of the nearest number that was seen, in proportion: an upper bound below it, a lower one above.
double PromptPace::reply_step_seconds(int64_t num_replies) const {
  if (num_replies == 0) return 0;
  const size_t n = std::min(static_cast<size_t>(num_replies), kMaxReplies);
  for (size_t distance = 0; distance <= kMaxReplies; ++distance) {
    if (distance < n && reply_steps_[n - distance] > 0) return reply_steps_[n - distance];
    if (n + distance <= kMaxReplies && reply_steps_[n + distance] > 0)
      return reply_steps_[n + distance] * static_cast<double>(n) /
             static_cast<double>(n + distance);
  }
  return 0;
}

}  // namespace invar
