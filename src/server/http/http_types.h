// What a handler gets and gives: Request, Response and ResponseWriter. Handlers know no socket;
// tests drive them with an Exchange (exchange.h), which is the ResponseWriter of the server too.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/error_body.h"

namespace invar::server {

using Clock = std::chrono::steady_clock;

struct Header {
  std::string name, value;
};

bool equal_ignoring_case(std::string_view a, std::string_view b);
// The first header of that name, any case, or nullptr.
const std::string* find_header(const std::vector<Header>& headers, std::string_view name);

struct Request {
  std::string method = {};
  std::string path = {};     // without query, trailing slash and --api-prefix
  std::string query = {};    // what stands behind '?', undecoded
  std::string path_id = {};  // what stands for {id} in the route, percent-decoded
  std::vector<Header> headers = {};
  std::string body = {};
  std::string peer = {};        // numeric address
  std::string request_id = {};  // the client's own, or new
  // SHA-256 of the caller's key as hex, "" when the server has no keys. Tells callers apart (cache
  // salt, caps, whose requests are listed); never logged or sent.
  std::string key_digest = {};
  ApiStyle style = ApiStyle::kOpenAi;
  Clock::time_point received = {};  // when its head was complete
};

struct Response {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::vector<Header> headers = {};  // beyond those every response has (response_head.h)
  std::string error_code = {};       // of an error body, for metrics and the log
};

Response json_response(std::string body);
Response error_response(ApiStyle style, const ApiError& error, std::string_view request_id);

struct StreamHead {
  std::string content_type = "text/event-stream";
  std::vector<Header> headers = {};
  // Sent by the server whenever the stream was silent for the interval, also while nothing runs.
  std::string ping = {};
  std::chrono::milliseconds ping_interval{0};  // 0: never
  // The event that ends the stream in this route's own format when it cannot go on, behind so many
  // events of write_event().
  std::function<std::string(const ApiError&, int64_t num_events)> error_event = {};
};

enum class CloseReason {
  kClientGone,     // FIN or RST, or the connection broke
  kClientTooSlow,  // did not read for the stall time-out
  kDraining,       // the drain deadline passed
  kFailed,         // fail() was called
};

// The answer to one request. All functions may be called from any thread, also after the handler
// has returned. Dropping the last reference without an answer sends a 500; dropping it inside a
// stream sends the error event.
class ResponseWriter {
 public:
  virtual ~ResponseWriter() = default;

  // A whole answer. After the first one (or a closed connection) nothing happens.
  virtual void send(Response response) = 0;

  // A stream: start_stream() once, write_event() with the bytes of whole events, end_stream().
  // False: the client is gone or the stream was ended from outside; stop, nothing is sent any more.
  virtual bool start_stream(StreamHead head) = 0;
  // Waits while the reader is more than the queue's limits behind. Never call it in an inline
  // route (http_server.h).
  virtual bool write_event(std::string event) = 0;
  virtual void end_stream() = 0;

  // Ends the answer with an error: a status when nothing was sent yet, else the error event and a
  // closed connection. Who holds the writer elsewhere (cancel by id) may call it at any time.
  virtual void fail(const ApiError& error) = 0;

  virtual bool closed() const = 0;
  // `callback` runs once, as soon as the answer can no longer be delivered; at once when that is so
  // already. It runs on an I/O thread: it cancels work and returns. on_closed(nullptr) returns only
  // when no callback runs any more, and must not be called from one.
  virtual void on_closed(std::function<void(CloseReason)> callback) = 0;
  // The reader is behind and write_event() waits.
  virtual bool paused() const = 0;
};

using Handler = std::function<void(Request request, std::shared_ptr<ResponseWriter> response)>;

}  // namespace invar::server
