// StreamState: what passes between the engine thread and the reader of a TokenStream. Shared by
// both, so that either may go first: a dropped stream cancels, an ended engine leaves readable
// streams.
#pragma once

#include <atomic>
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

  // Engine side.
  void push(TokenEvent event);
  void end(GenerationResult result);
  bool is_cancelled() const { return cancelled_.load(std::memory_order_relaxed); }
  bool is_behind();

  // Reader side.
  std::optional<TokenEvent> next();
  void cancel();
  const GenerationResult& result();

 private:
  std::shared_ptr<WakeUp> wake_up_;
  std::atomic<bool> cancelled_ = false;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TokenEvent> events_;
  bool behind_ = false;
  bool ended_ = false;
  GenerationResult result_;
};

std::unique_ptr<TokenStream> make_token_stream(std::shared_ptr<StreamState> state);

}  // namespace invar
