#include "server/http/http_server.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/redirect_error.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <new>
#include <thread>

#include "base/log.h"
#include "server/http/connection.h"
#include "server/http/listen_sockets.h"
#include "server/http/request_id.h"
#include "server/http/response_head.h"

namespace invar::server {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

namespace {

constexpr std::chrono::milliseconds kAcceptPause{100};
constexpr std::chrono::milliseconds kFlushTime{600};
constexpr std::chrono::milliseconds kHandlerTime{200};

void set_options(tcp::socket& socket) {
  const int fd = socket.native_handle();
  const auto set = [fd](int level, int name, int value) {
    ::setsockopt(fd, level, name, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  // A host that died: seen within 30 s, with bytes under way or none.
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 10);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 4);
  // What a reader that stalls can hold in the kernel; Linux doubles it.
  set(SOL_SOCKET, SO_SNDBUF, 128 << 10);
}

bool out_of_descriptors(const error_code& error) {
  return error == asio::error::no_descriptors ||
         error == boost::system::errc::too_many_files_open_in_system ||
         error == asio::error::no_buffer_space || error == asio::error::no_memory;
}

asio::ip::address plain_address(const asio::ip::address& address) {
  // IPv4 through a dual-stack socket is the same client as through an IPv4 one.
  if (address.is_v6() && address.to_v6().is_v4_mapped())
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6());
  return address;
}

// Best effort, without waiting: the client may have sent nothing yet.
void refuse_connection(tcp::socket& socket) {
  ApiError error = api_error("too_many_connections", "there are too many connections");
  error.retry_after_ms = 1000;
  const std::string id = new_id("req_");
  const Response response = error_response(ApiStyle::kOpenAi, error, id);
  ResponseFraming framing;
  framing.content_length = response.body.size();
  framing.close = true;
  const std::string bytes =
      response_head(response.status, response.content_type, id, response.headers, framing) +
      response.body;
  error_code ignored;
  char dropped[8192];
  socket.non_blocking(true, ignored);
  socket.write_some(asio::buffer(bytes), ignored);
  socket.shutdown(tcp::socket::shutdown_send, ignored);
  socket.read_some(asio::buffer(dropped), ignored);
  socket.close(ignored);
}

class Server final : public HttpServer {
 public:
  Server(const ServerOptions& options, const Parts& parts, std::vector<ListenSocket> sockets)
      : context_(options, parts) {
    for (int i = 0; i < std::max(options.num_io_threads, 1); ++i)
      io_.push_back(std::make_unique<IoThread>());
    for (const ListenSocket& socket : sockets) {
      addresses_.push_back(socket.address);
      const bool v6 = socket.address.starts_with('[');
      acceptors_.emplace_back(io_[0]->context, v6 ? tcp::v6() : tcp::v4(), socket.fd);
    }
    port_ = sockets.front().port;
    for (tcp::acceptor& acceptor : acceptors_)
      asio::co_spawn(io_[0]->context, accept(acceptor), [](std::exception_ptr) {});
    for (const std::unique_ptr<IoThread>& io : io_)
      threads_.emplace_back([&context = io->context] { run_io(context); });
  }

  ~Server() override { stop(); }

  const std::vector<std::string>& addresses() const override { return addresses_; }
  int port() const override { return port_; }
  const ServerStats& stats() const override { return context_.stats; }

  bool drain(std::chrono::milliseconds timeout) override {
    context_.parts.lifecycle->set_draining();
    if (!context_.wait_no_requests(Clock::now() + timeout)) {
      for_each_connection(&Connection::drain_deadline);
      context_.wait_no_requests(Clock::now() + kFlushTime);
    }
    return stop();
  }

 private:
  asio::awaitable<void> accept(tcp::acceptor& acceptor) {
    asio::steady_timer pause(io_[0]->context);
    Clock::time_point last_line{};
    std::string failed;  // why; not empty: a pause is due
    error_code error;
    for (size_t next = 0; acceptor.is_open();) {
      try {
        if (!failed.empty()) {
          if (Clock::now() - last_line >= std::chrono::seconds(1)) {
            last_line = Clock::now();
            log(LogLevel::kError, "no connection can be accepted: %s", failed.c_str());
          }
          failed.clear();
          pause.expires_after(kAcceptPause);
          co_await pause.async_wait(asio::redirect_error(asio::use_awaitable, error));
        }
        IoThread& io = *io_[next++ % io_.size()];
        tcp::socket socket(io.context);
        co_await acceptor.async_accept(socket, asio::redirect_error(asio::use_awaitable, error));
        if (error == asio::error::operation_aborted || !acceptor.is_open()) break;
        if (!error)
          begin(io, std::move(socket));
        else if (out_of_descriptors(error))
          failed = error.message();
        // Others are errors of the one connection that was about to come.
      } catch (const std::bad_alloc&) {  // this connection is closed, others are accepted
        failed = "no memory";            // short: needs none itself
      }
    }
  }

  void begin(IoThread& io, tcp::socket socket) {
    error_code error;
    const tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) return;
    set_options(socket);
    const asio::ip::address address = plain_address(peer.address());
    if (!context_.admit(address)) {
      ++context_.stats.refused;
      refuse_connection(socket);
      return;
    }
    ++context_.stats.accepted;
    std::shared_ptr<Connection> connection;
    try {
      connection = std::make_shared<Connection>(context_, io, std::move(socket), address);
    } catch (const std::bad_alloc&) {
      context_.leave(address);
      throw;
    }
    asio::post(io.context, [connection = std::move(connection)] { connection->start(); });
  }

  // What finds no memory is given up alone; the thread goes on.
  static void run_io(asio::io_context& context) {
    for (;;) {
      try {
        context.run();
        return;
      } catch (const std::bad_alloc&) {
        log(LogLevel::kWarning, "out of memory: an event of a connection was lost");
      }
    }
  }

  void for_each_connection(void (Connection::*call)()) {
    for (const std::unique_ptr<IoThread>& io : io_)
      asio::post(io->context, [&io = *io, call] {
        std::vector<std::shared_ptr<Connection>> all;  // a call may end one
        for (Connection* connection : io.connections) all.push_back(connection->shared_from_this());
        for (const std::shared_ptr<Connection>& connection : all) ((*connection).*call)();
      });
  }

  bool stop() {
    if (threads_.empty()) return handlers_ended_;
    asio::post(io_[0]->context, [this] {
      error_code ignored;
      for (tcp::acceptor& acceptor : acceptors_) acceptor.close(ignored);
      for_each_connection(&Connection::force_close);
      for (const std::unique_ptr<IoThread>& io : io_)
        asio::post(io->context, [&context = io->context] { context.stop(); });
    });
    for (std::thread& thread : threads_) thread.join();
    threads_.clear();
    // What was cancelled ends here; its coroutines use what is destroyed after them.
    for (const std::unique_ptr<IoThread>& io : io_) {
      io->context.restart();
      while (io->context.poll() > 0) {
      }
    }
    handlers_ended_ = context_.workers.stop(kHandlerTime);
    return handlers_ended_;
  }

  ServerContext context_;
  std::vector<std::unique_ptr<IoThread>> io_;
  std::vector<tcp::acceptor> acceptors_;
  std::vector<std::thread> threads_;
  std::vector<std::string> addresses_;
  int port_ = 0;
  bool handlers_ended_ = true;
};

}  // namespace

Result<std::unique_ptr<HttpServer>> HttpServer::start(const ServerOptions& options,
                                                      const Parts& parts) {
  std::vector<ListenSocket> sockets;
  if (options.listen_fd >= 0) {
    INVAR_TRY(ListenSocket socket, adopt_listen_socket(options.listen_fd));
    sockets.push_back(std::move(socket));
  } else {
    INVAR_TRY(sockets, open_listen_sockets(options.hosts, options.port));
  }
  return std::unique_ptr<HttpServer>(std::make_unique<Server>(options, parts, std::move(sockets)));
}

}  // namespace invar::server
