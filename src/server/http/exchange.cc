#include "server/http/exchange.h"

#include "base/check.h"

namespace invar::server {
namespace {

class Writer final : public ResponseWriter {
 public:
  explicit Writer(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}
  ~Writer() override { exchange_->abandoned(); }
  Writer(const Writer&) = delete;
  Writer& operator=(const Writer&) = delete;

  void send(Response response) override { exchange_->send(std::move(response)); }
  bool start_stream(StreamHead head) override { return exchange_->start_stream(std::move(head)); }
  bool write_event(std::string event) override { return exchange_->write_event(std::move(event)); }
  void end_stream() override { exchange_->end_stream(); }
  void fail(const ApiError& error) override { exchange_->fail(error); }
  bool closed() const override { return exchange_->closed(); }
  void on_closed(std::function<void(CloseReason)> callback) override {
    exchange_->on_closed(std::move(callback));
  }
  bool paused() const override { return exchange_->paused(); }

 private:
  std::shared_ptr<Exchange> exchange_;
};

}  // namespace

Exchange::Exchange(ApiStyle style, std::string request_id, const StreamLimits& limits,
                   std::function<void()> wake)
    : style_(style), request_id_(std::move(request_id)), limits_(limits), wake_(std::move(wake)) {}

std::shared_ptr<ResponseWriter> Exchange::writer(std::shared_ptr<Exchange> exchange) {
  return std::make_shared<Writer>(std::move(exchange));
}

void Exchange::wake() {
  if (wake_) wake_();
}

bool Exchange::over_limits() const {
  return queued_events_ >= limits_.max_events || queued_bytes_ >= limits_.max_bytes;
}

void Exchange::send(Response response) {
  const std::lock_guard lock(mutex_);
  if (is_over() || state_ != State::kWaiting) return;
  state_ = State::kEnded;
  response_ = std::move(response);
  wake();
}

bool Exchange::start_stream(StreamHead head) {
  const std::lock_guard lock(mutex_);
  if (is_over() || state_ != State::kWaiting) return false;
  state_ = State::kStreaming;
  error_event_ = head.error_event;
  head_ = std::move(head);
  wake();
  return true;
}

bool Exchange::write_event(std::string event) {
  std::unique_lock lock(mutex_);
  INVAR_CHECK(state_ != State::kWaiting || is_over(), "an event before start_stream()");
  if (!paused_since_ && over_limits()) paused_since_ = Clock::now();
  room_.wait(lock, [&] { return closed_ || state_ != State::kStreaming || !paused_since_; });
  if (closed_ || state_ != State::kStreaming) return false;
  if (event.empty()) return true;
  ++num_events_;
  ++queued_events_;
  queued_bytes_ += event.size();
  events_.push_back(std::move(event));
  wake();
  return true;
}

void Exchange::end_stream() {
  const std::lock_guard lock(mutex_);
  if (is_over() || state_ != State::kStreaming) return;
  state_ = State::kEnded;
  wake();
}

void Exchange::fail(const ApiError& error, CloseReason reason) {
  {
    const std::lock_guard lock(mutex_);
    if (is_over() || state_ == State::kEnded) return;
    if (state_ == State::kWaiting) {
      response_ = error_response(style_, error, request_id_);
    } else if (error_event_) {
      events_.push_back(error_event_(error, num_events_));
    }
    state_ = State::kEnded;
    failed_ = true;
    error_code_ = error.code;
    reason_ = reason;
    paused_since_.reset();
    wake();
    room_.notify_all();
  }
  run_callback(reason);
}

void Exchange::abandoned() {
  // What a callback refers to may be gone with the handler.
  on_closed(nullptr);
  ApiError error = api_error("engine_error", "the request ended without an answer");
  error.should_retry = false;
  fail(error);
}

bool Exchange::closed() const {
  const std::lock_guard lock(mutex_);
  return is_over();
}

bool Exchange::paused() const {
  const std::lock_guard lock(mutex_);
  return paused_since_.has_value();
}

std::optional<Clock::time_point> Exchange::paused_since() const {
  const std::lock_guard lock(mutex_);
  return paused_since_;
}

Exchange::Output Exchange::take() {
  const std::lock_guard lock(mutex_);
  Output output;
  output.response = std::move(response_);
  response_.reset();
  output.head = std::move(head_);
  head_.reset();
  output.events = std::move(events_);
  events_.clear();
  taken_events_ = queued_events_;
  taken_bytes_ = queued_bytes_;
  output.end = state_ == State::kEnded;
  output.failed = failed_;
  output.error_code = error_code_;
  return output;
}

void Exchange::written() {
  const std::lock_guard lock(mutex_);
  queued_events_ -= taken_events_;
  queued_bytes_ -= taken_bytes_;
  taken_events_ = taken_bytes_ = 0;
  // Half empty first: a handler that waits wakes up for more than one event.
  if (paused_since_ && queued_events_ <= limits_.max_events / 2 &&
      queued_bytes_ <= limits_.max_bytes / 2) {
    paused_since_.reset();
    room_.notify_all();
  }
}

void Exchange::close(CloseReason reason) {
  {
    const std::lock_guard lock(mutex_);
    wake_ = nullptr;
    if (closed_) return;
    closed_ = true;
    room_.notify_all();
    paused_since_.reset();
    if (failed_ || state_ == State::kEnded) return;
    reason_ = reason;
  }
  run_callback(reason);
}

void Exchange::run_callback(CloseReason reason) {
  const std::lock_guard lock(callback_mutex_);
  const auto callback = std::exchange(callback_, nullptr);
  if (callback) callback(reason);
}

void Exchange::on_closed(std::function<void(CloseReason)> callback) {
  const std::lock_guard lock(callback_mutex_);
  callback_ = std::move(callback);
  CloseReason reason;
  {
    const std::lock_guard state_lock(mutex_);
    if (!is_over()) return;
    reason = reason_;
  }
  run_callback(reason);
}

}  // namespace invar::server
