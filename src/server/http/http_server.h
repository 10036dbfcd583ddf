// HttpServer: sockets, limits, time-outs and drain around a Router. Its threads read requests,
// check their heads, hand them to handlers and send what those write; what a request means is the
// handlers' business. No type of the network library appears here.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "server/http/auth.h"
#include "server/http/exchange.h"
#include "server/http/lifecycle.h"
#include "server/http/origin_check.h"
#include "server/http/request_parser.h"
#include "server/http/router.h"

namespace invar::server {

struct ServerOptions {
  std::vector<std::string> hosts = {"127.0.0.1"};
  int port = 8080;     // 0: any free one
  int listen_fd = -1;  // a bound socket instead of hosts and port
  int num_io_threads = 2;

  HeadLimits head = {};
  uint64_t max_body_bytes = 16 << 20;
  // Of all bodies above 64 KiB that are being read: many clients together must not fill memory.
  uint64_t max_bodies_bytes = 256 << 20;
  StreamLimits stream = {};
  size_t max_connections = 1024;
  // Unset: 128, but loopback addresses have no limit of their own (a proxy on this machine, and all
  // local clients, come from one address).
  std::optional<size_t> max_connections_per_address = {};

  std::chrono::milliseconds header_timeout{10'000};
  std::chrono::milliseconds body_timeout{30'000};   // plus a second a KiB that came
  std::chrono::milliseconds idle_timeout{60'000};   // between requests
  std::chrono::milliseconds stall_timeout{30'000};  // a reader that takes nothing

  OriginPolicy origin = {};
};

// One finished request, for the log and metrics.
struct RequestRecord {
  std::string method = {}, route = {};  // "/v1/models/{id}"; "" when no route was found
  std::string request_id = {};
  int status = 0;  // 499: the client left before the answer
  std::string error_code = {};
  std::chrono::milliseconds duration{0};
};

struct ServerStats {
  std::atomic<int64_t> connections = 0, streams = 0;  // open now
  std::atomic<int64_t> accepted = 0, refused = 0;     // connections since the start
  std::atomic<int64_t> disconnections = 0;            // clients that left before their answer
  std::atomic<int64_t> too_slow = 0;                  // streams ended because nobody read them
};

class HttpServer {
 public:
  struct Parts {
    const Router* router = nullptr;
    KeyStore* keys = nullptr;
    Lifecycle* lifecycle = nullptr;
    // Called from I/O threads after each request; may be empty.
    std::function<void(const RequestRecord&)> on_finished = {};
  };
  // Listens and serves from now on. `parts` outlive the server. Errors: kIo, a host that does not
  // resolve or a port that is taken.
  static Result<std::unique_ptr<HttpServer>> start(const ServerOptions& options,
                                                   const Parts& parts);
  virtual ~HttpServer() = default;  // closes everything at once

  virtual const std::vector<std::string>& addresses() const = 0;  // "127.0.0.1:8080"
  virtual int port() const = 0;
  virtual const ServerStats& stats() const = 0;

  // Ends service: readiness fails and new work is refused at once; what runs may go on for
  // `timeout`, then it gets an error and its connection is closed. Returns within timeout + 1 s.
  // False: a handler still runs, and may go on using what it refers to.
  virtual bool drain(std::chrono::milliseconds timeout) = 0;
};

}  // namespace invar::server
