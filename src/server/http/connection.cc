#include "server/http/connection.h"

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <new>

#include "base/log.h"
#include "server/http/request_id.h"
#include "server/http/response_head.h"

namespace invar::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

// A refused body up to here is read and dropped so that the connection can go on.
constexpr uint64_t kMaxDiscarded = 65536;
constexpr size_t kSmallBody = 65536;
constexpr double kMinBodyRate = 1024;  // bytes a second
constexpr std::chrono::seconds kLingerTime{2};
constexpr uint64_t kMaxLingerBytes = 64 << 20;
constexpr std::chrono::milliseconds kLastWriteTime{500};

auto complete_into(error_code& error) { return asio::redirect_error(asio::use_awaitable, error); }

void close_quietly(tcp::socket& socket) {
  error_code ignored;
  socket.close(ignored);
}

}  // namespace

// ---- What connections share
// ----------------------------------------------------------------------

ServerContext::ServerContext(const ServerOptions& server_options,
                             const HttpServer::Parts& server_parts)
    : options(server_options), parts(server_parts), workers(server_options.max_connections) {
  policy.router = parts.router;
  policy.keys = parts.keys;
  policy.lifecycle = parts.lifecycle;
  policy.origin = options.origin;
  policy.max_body_bytes = options.max_body_bytes;
}

void ServerContext::begin_request() {
  const std::lock_guard lock(mutex_);
  ++num_requests_;
}

void ServerContext::end_request() {
  const std::lock_guard lock(mutex_);
  if (--num_requests_ == 0) changed_.notify_all();
}

bool ServerContext::wait_no_requests(Clock::time_point until) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, until, [this] { return num_requests_ == 0; });
}

bool ServerContext::admit(const asio::ip::address& address) {
  constexpr size_t kDefaultPerAddress = 128;
  const std::lock_guard lock(mutex_);
  if (static_cast<size_t>(stats.connections) >= options.max_connections) return false;
  size_t& count = by_address_[address.to_string()];
  const bool limited = options.max_connections_per_address || !address.is_loopback();
  if (limited && count >= options.max_connections_per_address.value_or(kDefaultPerAddress))
    return false;
  ++count;
  ++stats.connections;
  return true;
}

void ServerContext::leave(const asio::ip::address& address) {
  const std::lock_guard lock(mutex_);
  --stats.connections;
  const auto found = by_address_.find(address.to_string());
  if (found != by_address_.end() && --found->second == 0) by_address_.erase(found);
}

// ---- Life of a connection
// ------------------------------------------------------------------------

Connection::Connection(ServerContext& server, IoThread& io, tcp::socket socket,
                       const asio::ip::address& address)
    : server_(server),
      io_(io),
      socket_(std::move(socket)),
      address_(address),
      deadline_timer_(io.context),
      signal_timer_(io.context) {}

Connection::~Connection() {
  finish_exchange(CloseReason::kClientGone);
  io_.connections.erase(this);
  close_quietly(socket_);
  server_.leave(address_);
}

void Connection::start() {
  io_.connections.insert(this);
  error_code ignored;
  socket_.non_blocking(true, ignored);
  asio::co_spawn(
      io_.context, [self = shared_from_this()] { return self->run(); },
      [](std::exception_ptr) {});  // out of memory: this connection ends
}

Connection::awaitable<void> Connection::run() {
  Next next = Next::kRequest;
  while (next == Next::kRequest && !closing_) {
    next = co_await serve_one();
    served_ = true;
  }
  if (next == Next::kLinger && !closing_) co_await linger();
  error_code ignored;
  deadline_timer_.cancel();
  socket_.shutdown(tcp::socket::shutdown_both, ignored);
  close_quietly(socket_);
}

void Connection::drain_deadline() {
  closing_ = true;
  write_until_ = Clock::now() + kLastWriteTime;
  if (exchange_ != nullptr) {
    ApiError error = api_error("draining", "the server is shutting down");
    error.retry_after_ms = 5000;
    exchange_->fail(error, CloseReason::kDraining);
    if (writing_) set_deadline(write_until_);
  } else {
    error_code ignored;
    socket_.cancel(ignored);
  }
}

void Connection::force_close() {
  closing_ = true;
  if (exchange_ != nullptr) exchange_->close(CloseReason::kDraining);
  gone_ = true;
  signal();
  close_quietly(socket_);
}

// ---- One request
// ---------------------------------------------------------------------------------

Connection::awaitable<Connection::Next> Connection::serve_one() {
  const ServerOptions& options = server_.options;
  request_id_.clear();
  extra_headers_.clear();
  method_.clear();
  route_path_.clear();
  style_ = ApiStyle::kOpenAi;
  head_only_ = http_1_0_ = false;
  begin_ = Clock::now();

  HeadParser parser(options.head);
  bool waiting_idle = served_ && in_.empty();
  set_deadline(begin_ + (waiting_idle ? options.idle_timeout : options.header_timeout));
  HeadParser::State state = parser.parse(in_);
  while (state == HeadParser::State::kIncomplete) {
    const bool alive = co_await read_more();
    if (!alive) {
      if (!timed_out_ || !parser.started()) co_return Next::kClose;
      co_return co_await refuse(api_error("request_timeout", "the request head came too slowly"));
    }
    if (waiting_idle) {
      waiting_idle = false;
      begin_ = Clock::now();
      set_deadline(begin_ + options.header_timeout);
    }
    state = parser.parse(in_);
  }
  clear_deadline();
  if (state == HeadParser::State::kError) co_return co_await refuse(parser.error());
  in_.erase(0, parser.head_size());
  const RequestHead head = parser.take();

  const std::string* sent_id = find_header(head.headers, "X-Request-Id");
  request_id_ = request_id_or_new(sent_id == nullptr ? std::string_view() : *sent_id);
  method_ = head.method;
  http_1_0_ = head.http_1_0;
  head_only_ = head.method == "HEAD";
  HeadVerdict verdict = check_head(server_.policy, head);
  style_ = verdict.style;
  extra_headers_ = std::move(verdict.headers);
  if (verdict.match.route != nullptr) route_path_ = verdict.match.route->path;

  const bool keep_alive = head.keep_alive && !server_.parts.lifecycle->draining();
  if (verdict.error || verdict.preflight) {
    Response response;
    if (verdict.preflight) {
      response.status = 204;
      response.content_type.clear();
    } else {
      response = error_response(style_, *verdict.error, request_id_);
    }
    // The answer goes out before the body is looked at.
    const bool skips_body = head.has_body() && !head.expects_continue && !head.chunked &&
                            head.content_length <= kMaxDiscarded;
    const bool goes_on = keep_alive && (!head.has_body() || skips_body);
    const bool sent = co_await send_response(response, !goes_on);
    finish_request(response.status, response.error_code);
    if (!sent) co_return Next::kClose;
    if (!goes_on) co_return Next::kLinger;
    if (!head.has_body()) co_return Next::kRequest;
    co_return co_await discard_body(head);
  }

  server_.begin_request();
  counted_ = true;
  Request request;
  if (head.has_body()) {
    bool complete = false;
    const Next next = co_await read_body(head, request.body, complete);
    if (!complete) co_return next;
  }
  request.method = head.method;
  request.path = std::move(verdict.match.path);
  request.query = head.query;
  request.path_id = std::move(verdict.match.path_id);
  request.headers = head.headers;
  request.peer = address_.to_string();
  request.request_id = request_id_;
  request.key_digest = std::move(verdict.key_digest);
  request.style = style_;
  request.received = begin_;
  dispatch(*verdict.match.route, std::move(request));
  const Next next = co_await answer(keep_alive);
  co_return next;
}

Connection::awaitable<Connection::Next> Connection::read_body(const RequestHead& head,
                                                              std::string& body, bool& complete) {
  // Bodies up to kSmallBody are free; each larger one counts while it is read.
  struct Charge {
    std::atomic<uint64_t>& total;
    uint64_t mine = 0;
    ~Charge() { total -= mine; }
  } charge{server_.bodies_bytes};
  BodyParser parser(head, server_.options.max_body_bytes);
  const Clock::time_point begin = Clock::now();
  uint64_t received = 0;
  if (head.expects_continue && in_.empty()) {
    size_t written = 0;
    const bool sent = co_await write_all("HTTP/1.1 100 Continue\r\n\r\n", written);
    if (!sent) {
      finish_request(499, "");
      co_return Next::kClose;
    }
  }
  for (;;) {
    size_t consumed = 0;
    const BodyParser::State state = parser.parse(in_, consumed);
    in_.erase(0, consumed);
    received += consumed;
    if (state == BodyParser::State::kComplete) break;
    if (state == BodyParser::State::kError) co_return co_await refuse(parser.error());
    const uint64_t size = parser.body().size();
    if (size > kSmallBody) {
      server_.bodies_bytes += size - charge.mine;
      charge.mine = size;
      if (server_.bodies_bytes > server_.options.max_bodies_bytes) {
        ApiError error = api_error("no_memory", "too many large requests at once");
        error.retry_after_ms = 1000;
        co_return co_await refuse(error);
      }
    }
    // What came buys time: a second for each KiB.
    set_deadline(begin + server_.options.body_timeout +
                 std::chrono::duration_cast<Clock::duration>(
                     std::chrono::duration<double>(static_cast<double>(received) / kMinBodyRate)));
    const bool alive = co_await read_more();
    if (!alive) {
      if (timed_out_)
        co_return co_await refuse(api_error("request_timeout", "the body came too slowly"));
      finish_request(499, "");
      co_return Next::kClose;
    }
  }
  clear_deadline();
  body = std::move(parser.body());
  complete = true;
  co_return Next::kRequest;
}

Connection::awaitable<Connection::Next> Connection::discard_body(const RequestHead& head) {
  BodyParser parser(head, kMaxDiscarded);
  set_deadline(Clock::now() + kLingerTime);
  for (;;) {
    size_t consumed = 0;
    const BodyParser::State state = parser.parse(in_, consumed);
    in_.erase(0, consumed);
    if (state == BodyParser::State::kComplete) break;
    const bool alive = co_await read_more();
    if (state == BodyParser::State::kError || !alive) co_return Next::kClose;
  }
  clear_deadline();
  co_return Next::kRequest;
}

void Connection::dispatch(const Route& route, Request request) {
  gone_ = signalled_ = false;
  exchange_ = std::make_shared<Exchange>(
      style_, request_id_, server_.options.stream, [this, weak = weak_from_this()] {
        // Many events, one message to this thread.
        if (wake_posted_.exchange(true)) return;
        asio::post(io_.context, [weak] {
          if (const std::shared_ptr<Connection> self = weak.lock()) {
            self->wake_posted_ = false;
            self->signal();
          }
        });
      });
  auto shared_request = std::make_shared<Request>(std::move(request));
  auto run = [&route, shared_request, writer = Exchange::writer(exchange_)]() mutable {
    try {
      route.handler(std::move(*shared_request), writer);
    } catch (const std::bad_alloc&) {
      writer->fail(api_error("no_memory", "there is no memory for this request"));
    } catch (const std::exception& error) {
      log(LogLevel::kError, "a handler threw: %s", error.what());
      writer->fail(api_error("engine_error", "the request failed inside the server"));
    }
    writer.reset();
  };
  if (route.inline_handler) {
    run();
    return;
  }
  io_.watch.add(socket_.native_handle(), [this] {
    gone_ = true;
    signal();
    error_code ignored;
    socket_.cancel(ignored);
  });
  if (!server_.workers.post(std::move(run))) {
    ApiError error = api_error("no_memory", "no thread is free for this request");
    error.retry_after_ms = 1000;
    exchange_->fail(error);
  }
}

Connection::awaitable<Connection::Next> Connection::answer(bool keep_alive) {
  for (;;) {
    if (gone_) {
      ++server_.stats.disconnections;
      finish_exchange(CloseReason::kClientGone);
      finish_request(499, "");
      co_return Next::kClose;
    }
    Exchange::Output output = exchange_->take();
    if (output.response) {
      const Response response = *std::move(output.response);
      const bool goes_on = keep_alive && !server_.parts.lifecycle->draining() && !closing_;
      const bool sent = co_await send_response(response, !goes_on);
      finish_exchange(CloseReason::kClientGone);
      finish_request(response.status, response.error_code);
      if (!sent) co_return Next::kClose;
      co_return goes_on ? Next::kRequest : Next::kLinger;
    }
    if (output.head) {
      const Next next = co_await answer_stream(std::move(output), keep_alive);
      co_return next;
    }
    co_await wait_signal(Clock::time_point::max());
  }
}

Connection::awaitable<Connection::Next> Connection::answer_stream(Exchange::Output output,
                                                                  bool keep_alive) {
  const StreamHead head = *std::move(output.head);
  const bool chunked = !http_1_0_;
  const bool goes_on = keep_alive && chunked;
  const auto framed = [chunked](const std::string& event) {
    return chunked ? chunk(event) : event;
  };
  ResponseFraming framing;
  framing.chunked = chunked;
  framing.close = !goes_on;
  std::vector<Header> headers = extra_headers_;
  headers.insert(headers.end(), head.headers.begin(), head.headers.end());
  std::string bytes = response_head(200, head.content_type, request_id_, headers, framing);
  const bool pings = head.ping_interval.count() > 0 && !head.ping.empty();
  ++server_.stats.streams;
  struct Open {
    std::atomic<int64_t>& streams;
    ~Open() { --streams; }
  } open{server_.stats.streams};

  Clock::time_point last_sent = Clock::now();
  for (;;) {
    for (const std::string& event : output.events) bytes += framed(event);
    if (output.end && chunked) bytes += chunk("");
    size_t written = 0;
    const bool sent = bytes.empty() || co_await write_all(bytes, written);
    if (!sent && timed_out_ && !closing_) {
      // Nobody reads. The error follows what was begun, should there be room after all.
      ++server_.stats.too_slow;
      exchange_->fail(api_error("client_too_slow", "the client does not read its stream"),
                      CloseReason::kClientTooSlow);
      output = exchange_->take();
      std::string rest = bytes.substr(written);
      for (const std::string& event : output.events) rest += framed(event);
      if (chunked) rest += chunk("");
      write_until_ = Clock::now() + kLastWriteTime;
      co_await write_all(rest, written);
      finish_exchange(CloseReason::kClientTooSlow);
      finish_request(200, "client_too_slow");
      co_return Next::kClose;
    }
    if (!sent || gone_) {
      if (!closing_) ++server_.stats.disconnections;
      finish_exchange(CloseReason::kClientGone);
      finish_request(499, "");
      co_return Next::kClose;
    }
    if (!bytes.empty()) {
      exchange_->written();
      last_sent = Clock::now();
      bytes.clear();
    }
    if (output.end) break;
    co_await wait_signal(pings ? last_sent + head.ping_interval : Clock::time_point::max());
    output = exchange_->take();
    if (pings && output.events.empty() && !output.end &&
        Clock::now() >= last_sent + head.ping_interval)
      bytes = framed(head.ping);
  }
  const bool close = !goes_on || output.failed || closing_;
  finish_exchange(CloseReason::kClientGone);
  finish_request(200, output.error_code);
  co_return close ? Next::kLinger : Next::kRequest;
}

Connection::awaitable<bool> Connection::send_response(const Response& response, bool close) {
  std::vector<Header> headers = extra_headers_;
  headers.insert(headers.end(), response.headers.begin(), response.headers.end());
  ResponseFraming framing;
  framing.close = close;
  // 204 has no body and no length.
  if (response.status != 204) framing.content_length = response.body.size();
  std::string bytes =
      response_head(response.status, response.content_type, request_id_, headers, framing);
  if (!head_only_) bytes += response.body;
  size_t written = 0;
  const bool sent = co_await write_all(bytes, written);
  co_return sent;
}

Connection::awaitable<Connection::Next> Connection::refuse(const ApiError& error) {
  if (request_id_.empty()) request_id_ = new_id("req_");
  const Response response = error_response(style_, error, request_id_);
  co_await send_response(response, true);
  finish_request(response.status, response.error_code);
  co_return Next::kLinger;
}

// Closing a socket with unread bytes sends a reset, which may overtake the answer: say that nothing
// more comes, and read on for a while.
Connection::awaitable<void> Connection::linger() {
  error_code ignored;
  socket_.shutdown(tcp::socket::shutdown_send, ignored);
  set_deadline(Clock::now() + kLingerTime);
  for (uint64_t total = 0; total < kMaxLingerBytes; total += in_.size()) {
    in_.clear();
    const bool alive = co_await read_more();
    if (!alive) break;
  }
  clear_deadline();
}

void Connection::finish_exchange(CloseReason reason) {
  if (exchange_ == nullptr) return;
  io_.watch.remove(socket_.native_handle());
  exchange_->close(reason);
  exchange_.reset();
}

void Connection::finish_request(int status, const std::string& code) {
  if (counted_) server_.end_request();
  counted_ = false;
  if (!server_.parts.on_finished) return;
  RequestRecord record;
  record.method = method_;
  record.route = route_path_;
  record.request_id = request_id_;
  record.status = status;
  record.error_code = code;
  record.duration = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begin_);
  server_.parts.on_finished(record);
}

// ---- Reading, writing, waiting
// -------------------------------------------------------------------

Connection::awaitable<bool> Connection::read_more() {
  for (;;) {
    error_code error;
    const size_t count = socket_.read_some(asio::buffer(io_.read_buffer), error);
    if (!error) {
      in_.append(io_.read_buffer.data(), count);
      co_return true;
    }
    if (error != asio::error::would_block || timed_out_ || closing_) co_return false;
    co_await socket_.async_wait(tcp::socket::wait_read, complete_into(error));
    if (error) co_return false;
  }
}

Connection::awaitable<bool> Connection::write_all(std::string_view bytes, size_t& written) {
  written = 0;
  timed_out_ = false;
  while (written < bytes.size()) {
    error_code error;
    written +=
        socket_.write_some(asio::buffer(bytes.data() + written, bytes.size() - written), error);
    if (!error) continue;
    if (error != asio::error::would_block || timed_out_ || gone_) co_return false;
    // A reader that takes nothing, or so little that its stream stays paused.
    const std::chrono::milliseconds stall = server_.options.stall_timeout;
    Clock::time_point until = std::min(Clock::now() + stall, write_until_);
    if (exchange_ != nullptr) {
      const std::optional<Clock::time_point> paused = exchange_->paused_since();
      if (paused) until = std::min(until, *paused + stall);
    }
    set_deadline(until);
    writing_ = true;
    co_await socket_.async_wait(tcp::socket::wait_write, complete_into(error));
    writing_ = false;
    if (error) co_return false;
  }
  clear_deadline();
  co_return true;
}

Connection::awaitable<void> Connection::wait_signal(Clock::time_point until) {
  if (!signalled_) {
    error_code ignored;
    signal_timer_.expires_at(until);
    co_await signal_timer_.async_wait(complete_into(ignored));
  }
  signalled_ = false;
}

void Connection::signal() {
  signalled_ = true;
  signal_timer_.cancel();
}

void Connection::set_deadline(Clock::time_point deadline) {
  deadline_ = deadline;
  timed_out_ = false;
  if (deadline < armed_at_) arm_timer(deadline);
}

void Connection::clear_deadline() { deadline_ = Clock::time_point::max(); }

// One timer that is late rather than moved: a deadline that was put off costs nothing.
void Connection::arm_timer(Clock::time_point at) {
  armed_at_ = at;
  deadline_timer_.expires_at(at);
  deadline_timer_.async_wait([weak = weak_from_this()](const error_code& error) {
    const std::shared_ptr<Connection> self = weak.lock();
    if (error || self == nullptr) return;
    self->armed_at_ = Clock::time_point::max();
    if (Clock::now() >= self->deadline_) {
      self->timed_out_ = true;
      error_code ignored;
      self->socket_.cancel(ignored);
    } else if (self->deadline_ != Clock::time_point::max()) {
      self->arm_timer(self->deadline_);
    }
  });
}

}  // namespace invar::server
