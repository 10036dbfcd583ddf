// Connection: one client's socket, a coroutine on one I/O thread. Reads a request, checks it, lets
// a handler answer, sends the answer, and again. Internal to the server; sees the network library.
#pragma once

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "server/http/hangup_watch.h"
#include "server/http/http_server.h"
#include "server/http/request_checks.h"
#include "server/http/worker_pool.h"

namespace invar::server {

class Connection;

// What all connections of a server share.
struct ServerContext {
  ServerContext(const ServerOptions& server_options, const HttpServer::Parts& server_parts);

  const ServerOptions options;
  const HttpServer::Parts parts;
  CheckPolicy policy;
  WorkerPool workers;
  ServerStats stats;
  std::atomic<uint64_t> bodies_bytes = 0;  // of large bodies that are being read

  // Requests that were accepted and are not answered yet.
  void begin_request();
  void end_request();
  bool wait_no_requests(Clock::time_point until);

  // Connections by address; false: too many.
  bool admit(const boost::asio::ip::address& address);
  void leave(const boost::asio::ip::address& address);

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int64_t num_requests_ = 0;
  std::unordered_map<std::string, size_t> by_address_;
};

// One I/O thread's own: nothing of it is touched by another thread.
struct IoThread {
  // Before the context, which ends coroutines that use them when it goes.
  std::unordered_set<Connection*> connections;
  std::vector<char> read_buffer = std::vector<char>(65536);  // never kept over a wait
  boost::asio::io_context context{1};
  HangupWatch watch{context};
};

class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(ServerContext& server, IoThread& io, boost::asio::ip::tcp::socket socket,
             const boost::asio::ip::address& address);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  void start();           // on its I/O thread
  void drain_deadline();  // ends what runs with an error event, and idle connections at once
  void force_close();

 private:
  template <typename T>
  using awaitable = boost::asio::awaitable<T>;
  enum class Next { kRequest, kClose, kLinger };

  awaitable<void> run();
  awaitable<Next> serve_one();
  awaitable<Next> read_body(const RequestHead& head, std::string& body, bool& complete);
  awaitable<Next> discard_body(const RequestHead& head);
  awaitable<Next> answer(bool keep_alive);
  awaitable<Next> answer_stream(Exchange::Output output, bool keep_alive);
  awaitable<bool> send_response(const Response& response, bool close);
  awaitable<Next> refuse(const ApiError& error);
  awaitable<void> linger();

  awaitable<bool> read_more();
  // False: it broke, or came too slowly (timed_out_); `written` says how far it came.
  awaitable<bool> write_all(std::string_view bytes, size_t& written);
  awaitable<void> wait_signal(Clock::time_point until);

  void dispatch(const Route& route, Request request);
  void signal();
  void set_deadline(Clock::time_point deadline);
  void clear_deadline();
  void arm_timer(Clock::time_point at);
  void finish_request(int status, const std::string& error_code);
  void finish_exchange(CloseReason reason);

  ServerContext& server_;
  IoThread& io_;
  boost::asio::ip::tcp::socket socket_;
  const boost::asio::ip::address address_;
  boost::asio::steady_timer deadline_timer_, signal_timer_;
  Clock::time_point deadline_ = Clock::time_point::max(), armed_at_ = Clock::time_point::max();
  bool timed_out_ = false;
  bool signalled_ = false;
  std::atomic<bool> wake_posted_ = false;
  bool gone_ = false;     // the client closed its side while a handler ran
  bool closing_ = false;  // the server ends
  bool writing_ = false;  // waits for room in the socket
  // No write may go on after it (drain).
  Clock::time_point write_until_ = Clock::time_point::max();
  bool served_ = false;  // a request came before
  std::string in_;       // bytes that were read and not used

  // The current request.
  std::shared_ptr<Exchange> exchange_;
  std::string request_id_, method_, route_path_;
  ApiStyle style_ = ApiStyle::kOpenAi;
  std::vector<Header> extra_headers_;
  Clock::time_point begin_;
  bool head_only_ = false, http_1_0_ = false, counted_ = false;
};

}  // namespace invar::server
