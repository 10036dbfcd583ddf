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
    num_pages_ = 0;
    shown_state_ = RequestState::kFinishing;
    ended_ = true;
  }
  changed_.notify_all();
  end_.notify_all();
}

void StreamState::show(RequestState state, const RequestStatus& status) {
  constexpr auto kRelaxed = std::memory_order_relaxed;
  shown_state_.store(state, kRelaxed);
  num_prompt_.store(status.num_prompt_tokens, kRelaxed);
  num_cached_.store(status.num_cached_tokens, kRelaxed);
  num_prefilled_.store(status.num_prefilled_tokens, kRelaxed);
  num_completion_.store(status.num_completion_tokens, kRelaxed);
  num_pages_.store(status.num_kv_pages, kRelaxed);
  num_preemptions_.store(status.num_preemptions, kRelaxed);
}

void StreamState::set_scheduled(std::chrono::steady_clock::time_point at) {
  queue_ms_ = std::chrono::duration<double, std::milli>(at - created_).count();
}

RequestStatus StreamState::status() const {
  RequestStatus status;
  status.state = shown_state_;
  status.num_prompt_tokens = num_prompt_;
  status.num_cached_tokens = num_cached_;
  status.num_prefilled_tokens = num_prefilled_;
  status.num_completion_tokens = num_completion_;
  status.num_kv_pages = num_pages_;
  status.num_preemptions = num_preemptions_;
  status.queue_ms = queue_ms_;
  if (status.queue_ms < 0)
    status.queue_ms =
        std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - created_)
            .count();
  return status;
}

void StreamState::wait_end() {
  std::unique_lock lock(mutex_);
  end_.wait(lock, [&] { return ended_; });
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
  RequestStatus status() const override { return state_->status(); }
  void wait_end() const override { state_->wait_end(); }

 private:
  std::shared_ptr<StreamState> state_;
};

}  // namespace

std::unique_ptr<TokenStream> make_token_stream(std::shared_ptr<StreamState> state) {
  return std::make_unique<SharedTokenStream>(std::move(state));
}

}  // namespace invar
