// ScoreQueue: logits of one teacher-forced chunk on their way from the engine thread to the thread
// that called score(). One chunk at a time, so that a slow visitor costs no memory and no other
// request any time.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "engine/stream.h"

namespace invar {

class ScoreQueue {
 public:
  explicit ScoreQueue(std::shared_ptr<WakeUp> wake_up) : wake_up_(std::move(wake_up)) {}

  // Engine side.
  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  bool is_full();
  void push(std::span<const float> logits);
  void end(bool stopped);

  // Caller side. next() gives the rows that follow those before; nothing: the end.
  std::optional<std::vector<float>> next();
  void cancel();
  bool was_stopped();

 private:
  std::shared_ptr<WakeUp> wake_up_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::vector<float>> chunk_;
  bool ended_ = false;
  bool stopped_ = false;
};

}  // namespace invar
