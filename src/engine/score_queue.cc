// One slot between two threads.
#include "engine/score_queue.h"

#include <utility>

namespace invar {

bool ScoreQueue::is_full() {
  const std::lock_guard lock(mutex_);
  return chunk_.has_value();
}

void ScoreQueue::push(std::span<const float> logits) {
  {
    const std::lock_guard lock(mutex_);
    chunk_.emplace(logits.begin(), logits.end());
  }
  changed_.notify_one();
}

void ScoreQueue::end(bool stopped) {
  {
    const std::lock_guard lock(mutex_);
    ended_ = true;
    stopped_ = stopped;
  }
  changed_.notify_one();
}

std::optional<std::vector<float>> ScoreQueue::next() {
  std::optional<std::vector<float>> chunk;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || chunk_.has_value(); });
    chunk = std::exchange(chunk_, std::nullopt);
  }
  if (chunk) wake_up_->signal();
  return chunk;
}

void ScoreQueue::cancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  wake_up_->signal();
}

bool ScoreQueue::was_stopped() {
  const std::lock_guard lock(mutex_);
  return stopped_;
}

}  // namespace invar
