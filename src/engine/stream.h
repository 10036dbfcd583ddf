// StreamState: what passes between the engine thread and the reader of a TokenStream. Shared by
// both, so that either may go first: a dropped stream cancels, an ended engine leaves readable
// streams.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "invar/invar.h"

namespace invar {

// Wakes the engine thread; outlives the engine as long as a stream holds it.
class WakeUp {
 public:
  void signal();
  void wait();  // returns at once when signalled since the last wait

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool signalled_ = false;
};

class StreamState {
 public:
  // Events a reader may be behind; then its sequence pauses until half of them are read.
  static constexpr size_t kMaxQueued = 256;

  explicit StreamState(std::shared_ptr<WakeUp> wake_up) : wake_up_(std::move(wake_up)) {}

  // What others see of the request; state and queue_ms of `status` are given apart.
  void show(RequestState state, const RequestStatus& status);
  // It left the queue; until then status() counts on.
  void set_scheduled(std::chrono::steady_clock::time_point at);

  // Engine side.
  void push(TokenEvent event);
  void end(GenerationResult result);
  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  bool is_behind();

  // Reader side.
  std::optional<TokenEvent> next();
  void cancel();
  const GenerationResult& result();
  RequestStatus status() const;
  void wait_end();

 private:
  std::shared_ptr<WakeUp> wake_up_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TokenEvent> events_;
  bool behind_ = false;
  bool ended_ = false;
  std::condition_variable end_;  // apart from changed_, where a push wakes one reader
  GenerationResult result_;

  // Written by the engine thread, read by anybody.
  const std::chrono::steady_clock::time_point created_ = std::chrono::steady_clock::now();
  std::atomic<RequestState> shown_state_ = RequestState::kQueued;
  std::atomic<int64_t> num_prompt_ = 0, num_cached_ = 0, num_prefilled_ = 0, num_completion_ = 0;
  std::atomic<int> num_pages_ = 0, num_preemptions_ = 0;
  std::atomic<double> queue_ms_ = -1;  // < 0: still queued
};

std::unique_ptr<TokenStream> make_token_stream(std::shared_ptr<StreamState> state);

}  // namespace invar
