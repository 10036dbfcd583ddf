// Exchange: what passes between a handler (any thread) and the connection that sends its answer (an
// I/O thread). Counts what the reader is behind, and makes the handler wait when it is too much.
// Knows no socket: tests put a fake connection on the other side.
#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

#include "server/http/http_types.h"

namespace invar::server {

struct StreamLimits {
  size_t max_events = 256;
  size_t max_bytes = 1 << 20;
};

class Exchange {
 public:
  // `wake` is called (with a lock held; it posts and returns) when there is something to take.
  Exchange(ApiStyle style, std::string request_id, const StreamLimits& limits,
           std::function<void()> wake);

  // ---- Handler's side, behind the ResponseWriter that writer() makes ----
  static std::shared_ptr<ResponseWriter> writer(std::shared_ptr<Exchange> exchange);
  void send(Response response);
  bool start_stream(StreamHead head);
  bool write_event(std::string event);
  void end_stream();
  void fail(const ApiError& error, CloseReason reason = CloseReason::kFailed);
  bool closed() const;
  void on_closed(std::function<void(CloseReason)> callback);
  bool paused() const;
  // The handler let go of the writer.
  void abandoned();

  // ---- Connection's side ----
  struct Output {
    std::optional<Response> response = {};
    std::optional<StreamHead> head = {};
    std::deque<std::string> events = {};
    bool end = false;             // nothing follows
    bool failed = false;          // by fail(): close the connection behind it
    std::string error_code = {};  // when failed
  };
  Output take();
  // Events of the last take() have left: their room is free again.
  void written();
  // The connection is done with it: the answer was delivered, or cannot be any more (then the
  // handler hears `reason`, unless it had ended). After it `wake` is never called again.
  void close(CloseReason reason);
  // Since when write_event() waits; nothing when it does not.
  std::optional<Clock::time_point> paused_since() const;

 private:
  enum class State { kWaiting, kStreaming, kEnded };
  void wake();               // mutex_ held
  bool over_limits() const;  // mutex_ held
  bool is_over() const { return closed_ || failed_; }
  void run_callback(CloseReason reason);

  const ApiStyle style_;
  const std::string request_id_;
  const StreamLimits limits_;

  mutable std::mutex mutex_;
  std::condition_variable room_;
  std::function<void()> wake_;
  State state_ = State::kWaiting;
  bool closed_ = false, failed_ = false;
  CloseReason reason_ = CloseReason::kClientGone;  // when either is set
  std::optional<Response> response_;
  std::optional<StreamHead> head_;  // until taken
  std::function<std::string(const ApiError&, int64_t)> error_event_;
  int64_t num_events_ = 0;  // accepted from the handler
  std::string error_code_;
  std::deque<std::string> events_;
  size_t queued_events_ = 0, queued_bytes_ = 0;  // also those taken and not yet written
  size_t taken_events_ = 0, taken_bytes_ = 0;
  std::optional<Clock::time_point> paused_since_;

  // Held while a callback runs, and taken before mutex_. Recursive: a callback may drop the writer.
  std::recursive_mutex callback_mutex_;
  std::function<void(CloseReason)> callback_;
};

}  // namespace invar::server
