// A server with made-up routes, for the socket tests beside it (Python): limits and time-outs come
// from the command line as NAME=VALUE. Prints "port N" and serves until SIGTERM, then drains.
//
//   POST /echo    the body; ?delay_ms=N waits first; 499 in the count of `stats` when left
//   meanwhile POST /json    200 when the body is a JSON object POST /stream
//   ?events=N&bytes=N&interval_ms=N&ping_ms=N as server-sent events GET  /big     ?bytes=N GET
//   /stats   counts of what handlers saw
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "server/http/http_server.h"
#include "server/http/json_body.h"
#include "server/http/sse.h"

namespace invar::server {
namespace {

// Memory figures mean nothing then.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

std::map<std::string, std::string> g_arguments;

int64_t argument(const std::string& name, int64_t fallback) {
  const auto found = g_arguments.find(name);
  return found == g_arguments.end() ? fallback : std::atoll(found->second.c_str());
}

int64_t query_number(const Request& request, const std::string& name, int64_t fallback) {
  const size_t at = ("&" + request.query).find("&" + name + "=");
  if (at == std::string::npos) return fallback;
  return std::atoll(request.query.c_str() + at + name.size() + 1);
}

struct Counts {
  std::atomic<int64_t> running = 0, begun = 0, left = 0;
};
Counts g_counts;

// Counts how a handler's client went, and lets the handler wait for that.
class Watch {
 public:
  explicit Watch(std::shared_ptr<ResponseWriter> response) : response_(std::move(response)) {
    ++g_counts.running;
    ++g_counts.begun;
    response_->on_closed([this](CloseReason reason) {
      if (reason == CloseReason::kClientGone) ++g_counts.left;
      const std::lock_guard lock(mutex_);
      gone_ = true;
      changed_.notify_all();
    });
  }
  ~Watch() {
    response_->on_closed(nullptr);
    --g_counts.running;
  }
  bool sleep(int64_t ms) {
    std::unique_lock lock(mutex_);
    return !changed_.wait_for(lock, std::chrono::milliseconds(ms), [this] { return gone_; });
  }

 private:
  std::shared_ptr<ResponseWriter> response_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool gone_ = false;
};

void post_echo(const Request& request, std::shared_ptr<ResponseWriter> response) {
  Watch watch(response);
  if (!watch.sleep(query_number(request, "delay_ms", 0))) return;
  Response answer;
  answer.content_type = "application/octet-stream";
  answer.body = request.body;
  response->send(std::move(answer));
}

void post_json(const Request& request, std::shared_ptr<ResponseWriter> response) {
  Json json;
  if (const std::optional<ApiError> error = parse_json_body(request.body, json))
    return response->send(error_response(request.style, *error, request.request_id));
  response->send(json_response(R"({"ok":true})"));
}

void post_stream(const Request& request, std::shared_ptr<ResponseWriter> response) {
  Watch watch(response);
  const std::chrono::milliseconds ping(query_number(request, "ping_ms", 10'000));
  if (!response->start_stream(sse_head(request.style, request.request_id, ping))) return;
  const std::string filler(static_cast<size_t>(query_number(request, "bytes", 1)), 'x');
  const int64_t interval = query_number(request, "interval_ms", 0);
  for (int64_t i = 0; i < query_number(request, "events", 1); ++i) {
    if (interval > 0 && !watch.sleep(interval)) return;
    if (!response->write_event(sse_data(
            format("{\"i\":%lld,\"x\":\"%s\"}", static_cast<long long>(i), filler.c_str()))))
      return;
  }
  response->write_event(std::string(kSseDone));
  response->end_stream();
}

void get_big(const Request& request, std::shared_ptr<ResponseWriter> response) {
  Response answer;
  answer.body.assign(static_cast<size_t>(query_number(request, "bytes", 0)), 'b');
  response->send(std::move(answer));
}

// The server is there a moment after its first request may be.
void add_routes(Router& router, const std::atomic<const HttpServer*>& server) {
  const auto add = [&](const char* method, const char* path, Handler handler) {
    Route route;
    route.method = method;
    route.path = path;
    route.handler = std::move(handler);
    route.needs_engine = std::string(method) == "POST";
    router.add(std::move(route));
  };
  add("POST", "/echo", post_echo);
  add("POST", "/json", post_json);
  add("POST", "/stream", post_stream);
  add("POST", "/v1/messages", post_stream);
  add("GET", "/big", get_big);
  Route stats;
  stats.path = "/stats";
  stats.open = stats.inline_handler = true;
  stats.handler = [&server](const Request&, std::shared_ptr<ResponseWriter> response) {
    Json json = Json::object();
    const auto set = [&json](const char* name, int64_t value) { json.set(name, value); };
    set("running", g_counts.running);
    set("begun", g_counts.begun);
    set("left", g_counts.left);
    const HttpServer* running = server;
    if (running == nullptr) return response->fail(api_error("model_loading", "starting"));
    set("too_slow", running->stats().too_slow);
    set("connections", running->stats().connections);
    set("streams", running->stats().streams);
    set("refused", running->stats().refused);
    response->send(json_response(json.dump()));
  };
  router.add(std::move(stats));
}

int serve() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int signal : {SIGTERM, SIGINT}) sigaddset(&signals, signal);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  ::signal(SIGPIPE, SIG_IGN);

  ServerOptions options;
  options.port = 0;
  options.max_body_bytes = static_cast<uint64_t>(argument("max_body", 1 << 20));
  options.max_bodies_bytes = static_cast<uint64_t>(argument("max_bodies", 256 << 20));
  options.max_connections = static_cast<size_t>(argument("max_connections", 1024));
  if (g_arguments.contains("per_address"))
    options.max_connections_per_address = static_cast<size_t>(argument("per_address", 128));
  const auto time = [](const char* name, std::chrono::milliseconds& value) {
    value = std::chrono::milliseconds(argument(name, value.count()));
  };
  time("header_ms", options.header_timeout);
  time("body_ms", options.body_timeout);
  time("idle_ms", options.idle_timeout);
  time("stall_ms", options.stall_timeout);
  options.origin.check_host = argument("check_host", 1) != 0;
  if (g_arguments.contains("cors")) options.origin.cors_origins = {g_arguments["cors"]};
  KeyStore::Options key_options;
  if (g_arguments.contains("key")) key_options.keys = {g_arguments["key"]};
  key_options.file = g_arguments["key_file"];
  Result<std::unique_ptr<KeyStore>> keys = KeyStore::open(key_options);
  if (!keys) {
    std::fprintf(stderr, "%s\n", keys.error().message.c_str());
    return 2;
  }

  Lifecycle lifecycle;
  if (argument("ready", 1) != 0) lifecycle.set_ready();
  Router router;
  std::atomic<const HttpServer*> running = nullptr;
  add_probe_routes(router, lifecycle);
  add_routes(router, running);
  router.add_hint("/completions", "did you mean /v1/completions?");
  HttpServer::Parts parts;
  parts.router = &router;
  parts.keys = keys->get();
  parts.lifecycle = &lifecycle;
  Result<std::unique_ptr<HttpServer>> started = HttpServer::start(options, parts);
  if (!started) {
    std::fprintf(stderr, "%s\n", started.error().message.c_str());
    return 6;
  }
  const std::unique_ptr<HttpServer> server = *std::move(started);
  running = server.get();
  std::printf("port %d%s\n", server->port(), kSanitized ? " sanitized" : "");
  std::fflush(stdout);

  int signal = 0;
  ::sigwait(&signals, &signal);
  std::thread([&signals] {
    int second = 0;
    ::sigwait(&signals, &second);
    ::_exit(128 + second);
  }).detach();
  const bool ended = server->drain(std::chrono::milliseconds(argument("drain_ms", 1000)));
  ::_exit(ended ? 0 : 3);
}

}  // namespace
}  // namespace invar::server

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string text = argv[i];
    const size_t equals = text.find('=');
    invar::server::g_arguments[text.substr(0, equals)] = text.substr(equals + 1);
  }
  return invar::server::serve();
}
