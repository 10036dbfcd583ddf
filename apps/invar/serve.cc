// `invar serve`: one model over HTTP. Flags in, server and engine started in that order, signals
// answered; what requests mean is src/server's business.
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "commands.h"
#include "exit_codes.h"
#include "model_files.h"
#include "models_folder.h"
#include "server/chat_route.h"
#include "server/completions_route.h"
#include "server/http/http_server.h"
#include "server/http/listen_sockets.h"
#include "server/model_routes.h"
#include "server/token_routes.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "serve";
constexpr int kDefaultPort = 8080;
constexpr std::chrono::seconds kInterruptDrain{3};
constexpr size_t kMaxTerminationLog = 4096;

struct ServeFlags {
  std::string model;
  std::string alias;
  std::string host = "127.0.0.1";
  std::optional<int64_t> port, listen_fd;
  std::string api_prefix;
  std::string api_keys, api_key_file, allowed_hosts, cors_origins;
  bool insecure_no_key = false;
  int64_t num_io_threads = 2, max_body_bytes = 16 << 20, stall_seconds = 30, drain_seconds = 8;
  int64_t max_sequences = 4, sse_ping_seconds = 10, cache_mib = -1;
  bool any_model_name = false, clamp_max_tokens = false, strict_fields = false;
  std::string termination_log = "/dev/termination-log";
  EngineFlags engine;
};

std::vector<std::string> split(const std::string& list) {
  std::vector<std::string> words;
  for (size_t begin = 0; begin <= list.size();) {
    const size_t end = std::min(list.find(',', begin), list.size());
    if (end > begin) words.push_back(list.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

const char* exit_name(int code) {
  switch (code) {
    case kExitUsage:
      return "usage";
    case kExitModel:
      return "model";
    case kExitUnsupported:
      return "unsupported";
    case kExitMemory:
      return "memory";
    case kExitAddress:
      return "address";
    default:
      return "failed";
  }
}

// The last line on standard error, and the same where Kubernetes looks for it.
int fatal(const ServeFlags& flags, const std::string& cause, int code) {
  std::string line = format("fatal: %s: %s", exit_name(code), escape_control(cause).c_str());
  std::replace(line.begin(), line.end(), '\n', ' ');
  print_error(line + "\n");
  if (!flags.termination_log.empty() && ::access(flags.termination_log.c_str(), W_OK) == 0) {
    if (std::FILE* file = std::fopen(flags.termination_log.c_str(), "w")) {
      std::fputs(line.substr(0, kMaxTerminationLog).c_str(), file);
      std::fclose(file);
    }
  }
  return code;
}

// SIGTERM and SIGINT end the server once it has drained, a second one at once; SIGHUP reads the key
// file again. All are taken by one thread.
class Signals {
 public:
  explicit Signals(server::KeyStore& keys) {
    sigemptyset(&set_);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set_, signal);
    ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    std::thread([this, &keys] { watch(keys); }).detach();
  }
  // From now on a signal waits for wait(); before, it ends the process: nothing is served yet.
  void serving() {
    const std::lock_guard lock(mutex_);
    serving_ = true;
  }
  int wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return signal_ != 0; });
    return signal_;
  }

 private:
  void watch(server::KeyStore& keys) {
    for (;;) {
      int signal = 0;
      if (::sigwait(&set_, &signal) != 0) continue;
      if (signal == SIGHUP) {
        keys.reload();
        continue;
      }
      const std::lock_guard lock(mutex_);
      if (!serving_) ::_exit(kExitOk);
      if (signal_ != 0) ::_exit(128 + signal);
      signal_ = signal;
      changed_.notify_all();
    }
  }

  sigset_t set_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool serving_ = false;
  int signal_ = 0;
};

Result<server::ServerOptions> server_options(const ServeFlags& flags, bool has_keys) {
  server::ServerOptions options;
  options.hosts = split(flags.host);
  if (options.hosts.empty()) return invalid_argument("--host names no host");
  const char* port = std::getenv("PORT");
  int64_t port_value = kDefaultPort;
  if (flags.port) {
    port_value = *flags.port;
  } else if (port != nullptr &&
             (!parse_number(port, port_value) || port_value < 0 || port_value > 65535)) {
    return invalid_argument("the variable PORT is '%s', not a port from 0 to 65535", port);
  }
  options.port = static_cast<int>(port_value);
  if (flags.listen_fd) options.listen_fd = static_cast<int>(*flags.listen_fd);
  options.num_io_threads = static_cast<int>(flags.num_io_threads);
  options.max_body_bytes = static_cast<uint64_t>(flags.max_body_bytes);
  options.stall_timeout = std::chrono::seconds(flags.stall_seconds);
  options.origin.allowed_hosts = split(flags.allowed_hosts);
  options.origin.cors_origins = split(flags.cors_origins);
  for (const std::string& origin : options.origin.cors_origins)
    if (const Result<void> check = server::check_cors_origin(origin); !check)
      return with_context("--cors-origins", check.error());
  bool loopback = false;
  if (flags.listen_fd) {
    loopback = server::is_loopback_socket(options.listen_fd);
  } else {
    INVAR_TRY(loopback, server::all_loopback(options.hosts));
  }
  if (!loopback && !has_keys && !flags.insecure_no_key)
    return invalid_argument(
        "--host %s can be reached from other machines, and there is no API key; give --api-key or "
        "--api-key-file, or --insecure-no-key if everybody may use it",
        flags.host.c_str());
  options.origin.check_host = loopback && !has_keys;
  return options;
}

std::vector<std::string> served_names(const ServeFlags& flags, const std::string& path) {
  std::vector<std::string> names = split(flags.alias);
  if (!names.empty()) return names;
  std::string name = model_label(path);
  if (name.ends_with(".gguf")) name.resize(name.size() - 5);
  return {name};
}

server::ApiOptions api_options(const ServeFlags& flags, const std::vector<std::string>& names,
                               server::KeyStore& keys, bool is_private) {
  server::ApiOptions options;
  options.model_names = names;
  // Clients on this machine invent model names; routers before other machines rely on the 404.
  options.any_model_name = flags.any_model_name || is_private;
  options.clamp_max_tokens = flags.clamp_max_tokens;
  options.strict_fields = flags.strict_fields;
  options.salt_per_key = keys.num_keys() > 1;
  options.sse_ping_seconds = static_cast<int>(flags.sse_ping_seconds);
  return options;
}

// One token through the whole engine: what cannot run shows before anybody waits for it.
Result<void> warm_up(Engine& engine) {
  GenerationRequest request;
  request.prompt_ids = {0};
  request.max_tokens = 1;
  INVAR_TRY(const std::unique_ptr<TokenStream> stream, engine.submit(request));
  while (stream->next()) {
  }
  if (stream->result().finish_reason == FinishReason::kError) return stream->result().error;
  return {};
}

void log_request(const server::RequestRecord& record) {
  log(LogLevel::kInfo, "request %s %s %s status %d%s%s in %lld ms", record.request_id.c_str(),
      record.method.empty() ? "-" : record.method.c_str(),
      record.route.empty() ? "-" : record.route.c_str(), record.status,
      record.error_code.empty() ? "" : " ", record.error_code.c_str(),
      static_cast<long long>(record.duration.count()));
}

int serve(const ServeFlags& flags) {
  // Bodies and replies come and go in sizes that would else raise these thresholds for good and
  // keep freed memory.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 4 << 20);
  set_log_level(LogLevel::kInfo);

  const Result<std::unique_ptr<server::KeyStore>> keys =
      server::KeyStore::open({.keys = split(flags.api_keys), .file = flags.api_key_file});
  if (!keys) return fatal(flags, keys.error().message, kExitUsage);
  Signals signals(**keys);
  const Result<server::ServerOptions> options = server_options(flags, (*keys)->has_keys());
  if (!options)
    return fatal(flags, options.error().message,
                 options.error().code == ErrorCode::kIo ? kExitAddress : kExitUsage);
  const Result<std::string> path = resolve_model(flags.model);
  if (!path) return fatal(flags, path.error().message, exit_code(path.error().code));
  const Result<std::unique_ptr<Backend>> backend = open_backend(flags.engine);
  if (!backend) return fatal(flags, backend.error().message, exit_code(backend.error().code));
  const BackendInfo& info = (*backend)->info();

  // The engine goes after the server, whose handlers use it.
  std::unique_ptr<Engine> engine;
  server::Lifecycle lifecycle;
  server::ServedModel model(served_names(flags, *path), info.name, info.arithmetic_id, info.isa);
  server::Router router(flags.api_prefix);
  server::add_probe_routes(router, lifecycle);
  server::add_model_routes(router, model);
  const server::ApiOptions api =
      api_options(flags, model.names(), **keys, options->origin.check_host);
  const auto engine_of = [&model] { return model.engine(); };
  server::add_chat_routes(router, engine_of, api);
  server::add_completions_routes(router, engine_of, api);
  server::add_token_routes(router, engine_of, api);

  server::HttpServer::Parts parts;
  parts.router = &router;
  parts.keys = keys->get();
  parts.lifecycle = &lifecycle;
  parts.on_finished = log_request;
  Result<std::unique_ptr<server::HttpServer>> started = server::HttpServer::start(*options, parts);
  if (!started) return fatal(flags, started.error().message, kExitAddress);
  const std::unique_ptr<server::HttpServer> http = *std::move(started);
  // On standard output, for who started us with --port 0.
  for (const std::string& address : http->addresses()) print("http://" + address + "\n");
  log(LogLevel::kInfo, "listening, %zu API keys, loading %s", (*keys)->num_keys(), path->c_str());

  EngineOptions engine_options = flags.engine.options(*path);
  engine_options.max_sequences = static_cast<int>(flags.max_sequences);
  engine_options.prefix_cache_bytes = flags.cache_mib < 0 ? -1 : flags.cache_mib << 20;
  engine_options.progress = [&](uint64_t done, uint64_t total) {
    lifecycle.set_loading("reading", total == 0 ? 0 : double(done) / double(total));
  };
  const auto begin = std::chrono::steady_clock::now();
  Result<std::unique_ptr<Engine>> opened = Engine::open(engine_options);
  if (!opened) return fatal(flags, opened.error().message, exit_code(opened.error().code));
  engine = *std::move(opened);
  lifecycle.set_loading("warm-up", 1);
  if (const Result<void> warm = warm_up(*engine); !warm)
    return fatal(flags, warm.error().message, exit_code(warm.error().code));
  model.set_engine(engine.get(), engine_options.max_sequences);
  signals.serving();
  lifecycle.set_ready();
  const ModelDescription& d = engine->description();
  log(LogLevel::kInfo, "ready in %.1f s: %s %s on %s (%s), %d threads, arithmetic %s, context %lld",
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(),
      d.family.c_str(), d.quantization.c_str(), d.backend.c_str(), d.isa.c_str(), d.num_threads,
      d.arithmetic_id.c_str(), static_cast<long long>(d.context));

  const int signal = signals.wait();
  const std::chrono::seconds drain =
      signal == SIGINT ? std::min(kInterruptDrain, std::chrono::seconds(flags.drain_seconds))
                       : std::chrono::seconds(flags.drain_seconds);
  log(LogLevel::kInfo, "stopping, running requests may take %lld s more",
      static_cast<long long>(drain.count()));
  const bool ended = http->drain(drain);
  log(LogLevel::kInfo, "stopped");
  // A handler that still runs uses the engine: nothing may be destroyed under it. And nothing is
  // left to write.
  if (!ended) ::_exit(kExitOk);
  return kExitOk;
}

}  // namespace

std::function<int()> add_serve(FlagSet& flags) {
  auto options = std::make_shared<ServeFlags>();
  add_model(flags, options->model);
  flags.take_last_and_environment();
  flags.group("Where it listens");
  flags.text("--host", "LIST", options->host,
             "Names or addresses, comma between; '::' is IPv6 and IPv4.", "127.0.0.1");
  flags.whole("--port", "N", {0, 65535}, options->port,
              "0 takes a free one and prints it. Default: the variable PORT, else 8080.");
  flags.whole("--listen-fd", "N", {0, 1 << 20}, options->listen_fd,
              "A bound socket that we inherit, instead of --host and --port.");
  flags.text("--api-prefix", "PATH", options->api_prefix, "Serves all routes below PATH.");
  flags.text("--alias", "LIST", options->alias,
             "What requests call the model, the first name is shown. Default: its file name.");
  flags.toggle("--any-model-name", options->any_model_name,
               "Answers whatever model a request names; on without keys on this machine.");
  flags.toggle("--clamp-max-tokens", options->clamp_max_tokens,
               "Lowers a max_tokens that passes the window, instead of an error.");
  flags.toggle("--strict-fields", options->strict_fields,
               "Refuses requests with unknown fields, instead of a warning.");
  flags.group("Who may use it");
  flags.text("--api-key", "LIST", options->api_keys,
             "Keys, comma between. Seen in `ps`; a file or INVAR_API_KEY is not.");
  flags.text("--api-key-file", "FILE", options->api_key_file,
             "One key a line, mode 0600; read again when it changes.");
  flags.toggle("--insecure-no-key", options->insecure_no_key,
               "Lets other machines in without a key.");
  flags.text("--allowed-hosts", "LIST", options->allowed_hosts,
             "More names for the Host header, without keys.");
  flags.text("--cors-origins", "LIST", options->cors_origins,
             "Origins whose pages may call us; 'localhost': any port of this machine; '*': all.");
  flags.group("Limits");
  flags.whole("--parallel,--max-num-seqs", "N", {1, 1024}, options->max_sequences,
              "Sequences that run at once.", "4");
  flags.whole("--cache-ram", "MIB", {-1, int64_t{1} << 30}, options->cache_mib,
              "Keys and values kept for later prompts that begin alike; 0: none; -1: whatever "
              "running requests leave.",
              "-1");
  flags.whole("--threads-http", "N", {1, 64}, options->num_io_threads, "I/O threads.", "2");
  flags.whole("--max-body-bytes", "N", {1024, int64_t{1} << 30}, options->max_body_bytes,
              "Largest request body.", "16777216");
  flags.whole("--timeout", "S", {1, 3600}, options->stall_seconds,
              "Seconds a stream waits for a reader that takes nothing.", "30");
  flags.whole("--sse-ping-interval", "S", {-1, 600}, options->sse_ping_seconds,
              "Seconds of silence before a stream gets a ping; -1: never.", "10");
  flags.whole("--drain-timeout", "S", {0, 3600}, options->drain_seconds,
              "Seconds that running requests have after SIGTERM; after Ctrl-C at most 3.", "8");
  flags.text("--termination-log", "FILE", options->termination_log,
             "Where the reason of a failed start is written, if it is writable.",
             "/dev/termination-log");
  options->engine.add_chat_template(flags);
  options->engine.add_backend(flags);
  options->engine.add_context(flags);
  flags.footer(
      "Each flag has a variable: --api-key is INVAR_API_KEY. A flag given twice: the last one "
      "wins.\n"
      "Exit code 0 after one SIGTERM or Ctrl-C, 128+n at once after a second one.\n\n"
      "Examples:\n"
      "  invar serve SmolLM2-135M-Instruct\n"
      "  invar serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
      "  curl http://127.0.0.1:8080/v1/models");
  return [options] { return serve(*options); };
}

}  // namespace invar::cli
