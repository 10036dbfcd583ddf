// Streams: a bounded queue from the engine thread to one reader.
#include "engine/stream.h"

#include <utility>

namespace invar {

void WakeUp::signal() {
  {
    const std::lock_guard lock(mutex_);
    signalled_ = true;
  }
  changed_.notify_one();
}

void WakeUp::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return signalled_; });
  signalled_ = false;
}

void StreamState::push(TokenEvent event) {
  {
    const std::lock_guard lock(mutex_);
    events_.push_back(std::move(event));
  }
  changed_.notify_one();
}

void StreamState::end(GenerationResult result) {
  {
    const std::lock_guard lock(mutex_);
    result_ = std::move(result);
    ended_ = true;
  }
  changed_.notify_all();
}

bool StreamState::is_behind() {
  const std::lock_guard lock(mutex_);
  if (events_.size() >= kMaxQueued) behind_ = true;
  return behind_;
}

std::optional<TokenEvent> StreamState::next() {
  std::optional<TokenEvent> event;
  bool caught_up = false;
  {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return ended_ || !events_.empty(); });
    if (events_.empty()) return std::nullopt;
    event = std::move(events_.front());
    events_.pop_front();
    if (behind_ && events_.size() <= kMaxQueued / 2) {
      behind_ = false;
      caught_up = true;
    }
  }
  if (caught_up) wake_up_->signal();
  return event;
}

void StreamState::cancel() {
  cancelled_.store(true, std::memory_order_relaxed);
  wake_up_->signal();
}

const GenerationResult& StreamState::result() {
  static const GenerationResult kNotYet;
  const std::lock_guard lock(mutex_);
  return ended_ ? result_ : kNotYet;  // never changes after the end
}

namespace {

class SharedTokenStream : public TokenStream {
 public:
  explicit SharedTokenStream(std::shared_ptr<StreamState> state) : state_(std::move(state)) {}
  ~SharedTokenStream() override { state_->cancel(); }
  std::optional<TokenEvent> next() override { return state_->next(); }
  void cancel() override { state_->cancel(); }
  const GenerationResult& result() const override { return state_->result(); }

 private:
  std::shared_ptr<StreamState> state_;
};

}  // namespace

std::unique_ptr<TokenStream> make_token_stream(std::shared_ptr<StreamState> state) {
  return std::make_unique<SharedTokenStream>(std::move(state));
}

}  // namespace invar
