// `invar serve`: one model over HTTP. Server and engine are started in that order, and ended on a
// signal; what requests mean is src/server's business. Flags: serve_flags.h, serve_options.h.
#include <malloc.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

#include "base/log.h"
#include "commands.h"
#include "engine/memory_plan.h"
#include "exit_codes.h"
#include "fatal.h"
#include "model_files.h"
#include "models_folder.h"
#include "scripted.h"
#include "serve_options.h"
#include "serve_window.h"
#include "server/chat_route.h"
#include "server/completions_route.h"
#include "server/messages_route.h"
#include "server/model_routes.h"
#include "server/page_route.h"
#include "server/props_routes.h"
#include "server/request_routes.h"
#include "server/responses_route.h"
#include "server/token_routes.h"
#include "server/warning_log.h"
#include "signals.h"
#include "stall.h"
#include "start_report.h"
#include "terminal.h"
#include "tuning.h"
#include "words.h"

namespace invar::cli {
namespace {

constexpr std::chrono::seconds kInterruptDrain{3};

// One token through the whole engine: what cannot run shows before anybody waits for it.
Result<void> warm_up(Engine& engine) {
  GenerationRequest request;
  request.prompt_ids = {0};
  request.max_tokens = 1;
  request.count = false;
  INVAR_TRY(const std::unique_ptr<TokenStream> stream, engine.submit(request));
  while (stream->next()) {
  }
  if (stream->result().finish_reason == FinishReason::kError) return stream->result().error;
  return {};
}

void log_request(const server::RequestRecord& record) {
  // Probes, scrapes and the page's polls come every few seconds: that they worked is no news.
  const bool only_looked =
      record.status < 400 && (record.method == "GET" || record.method == "HEAD");
  log(only_looked ? LogLevel::kDebug : LogLevel::kInfo, "request %s %s %s status %d%s%s in %lld ms",
      record.request_id.c_str(), record.method.empty() ? "-" : record.method.c_str(),
      record.route.empty() ? "-" : record.route.c_str(), record.status,
      record.error_code.empty() ? "" : " ", record.error_code.c_str(),
      static_cast<long long>(record.duration.count()));
}

Result<std::string> model_path(const ServeFlags& flags) {
  const std::string& model = flags.model.empty() ? flags.model_word : flags.model;
  return flags.engine.backend == kScriptedBackend ? script_path(flags.script, model)
                                                  : resolve_model(model);
}

// Whether the process may be swapped out is the system's business: a refusal ends no server.
void lock_memory(const ServeFlags& flags) {
  if (flags.load_mode == "dio") log(LogLevel::kWarning, "--load-mode dio has no effect");
  if (!flags.mlock && flags.load_mode.find("mlock") == std::string::npos) return;
  // What is there now stays; pages that are not there yet are locked when they come.
  if (::mlockall(MCL_CURRENT | MCL_ONFAULT) == 0) return;
  const std::string cause = std::strerror(errno);
  rlimit limit{};
  ::getrlimit(RLIMIT_MEMLOCK, &limit);
  const std::string most =
      limit.rlim_cur == RLIM_INFINITY ? "unlimited" : readable_bytes(limit.rlim_cur);
  log(LogLevel::kWarning, "memory is not locked: %s; the limit is %s (ulimit -l)", cause.c_str(),
      most.c_str());
}

// What was asked for and cannot be: said, or refused. Nothing falls back silently.
Result<void> check_drafter(const ServeFlags& flags) {
  if (flags.drafter == "auto")
    log(LogLevel::kInfo, "no drafter: drafting is not built yet");
  else if (flags.drafter != "none" && !flags.drafter.empty())
    return unsupported("--drafter %s: drafting is not built yet", flags.drafter.c_str());
  if (flags.spec_type != "none")
    return unsupported("--spec-type %s: drafting is not built yet", flags.spec_type.c_str());
  return {};
}

// Flags that are good each, and not together. Nothing is opened or written before.
Result<void> check_together(const ServeFlags& flags) {
  if (!flags.model.empty() && !flags.model_word.empty() && flags.model != flags.model_word)
    return invalid_argument("the model is given twice: '%s' and --model '%s'",
                            flags.model_word.c_str(), flags.model.c_str());
  if (flags.model.empty() && flags.model_word.empty() && flags.engine.backend != kScriptedBackend)
    return invalid_argument(
        "MODEL is missing (also --model); `invar serve --help` shows how it is used");
  if (!flags.defaults.chat_template.empty() && !flags.engine.chat_template_file.empty())
    return invalid_argument(
        "--chat-template and --chat-template-file both give a template; give one of them");
  if (flags.engine.state_cache_bytes > 0 && prefix_cache_bytes(flags) == 0)
    return invalid_argument(
        "--state-cache-bytes is for the cache that %s turns off; give one of them",
        flags.use_prefix_cache ? "--cache-ram 0" : "--no-cache-prompt");
  const bool on_disk = !flags.cache_folder.empty() && flags.cache_folder != "off";
  if (on_disk && !flags.use_prefix_cache)
    return invalid_argument(
        "--cache-disk keeps what --no-cache-prompt turns off; give one of them");
  if (on_disk && flags.cache_mib == 0)
    return invalid_argument(
        "--cache-disk keeps pages of the cache that --cache-ram 0 turns off; give one of them");
  return {};
}

// How the process speaks, before it says anything. Error: the log file.
Result<void> start_log(const ServeFlags& flags) {
  set_log_level(log_level(flags.log));
  INVAR_TRY_VOID(set_log_options(log_options(flags.log, ::isatty(STDERR_FILENO) == 1)));
  for (const std::string& warning : *flags.warnings) log(LogLevel::kWarning, "%s", warning.c_str());
  if (flags.context != "0" && flags.max_sequences > 1)
    log(LogLevel::kWarning,
        "--ctx-size is the window of each request: it is not divided by --parallel");
  return {};
}

// Between socket and engine: what requests go through. Outlives the server, whose handlers use it.
struct RequestPath {
  RequestPath(const ServeFlags& flags, const std::string& path, const BackendInfo& info,
              server::KeyStore& keys, bool is_private)
      : model(served_names(flags, path), info.name, info.arithmetic_id, info.isa),
        admission(admission_limits(flags)),
        router(flags.api_prefix),
        metrics(metrics_options(flags), model, requests, lifecycle),
        api(api_options(flags, model.names(), keys, is_private)) {
    api.requests = &requests;
    api.warning_log = &warning_log;
    router.set_guard(
        [this](server::Handler handler) { return admission.guard(std::move(handler)); });
    server::add_probe_routes(router, lifecycle);
    server::add_model_routes(router, model);
    server::add_request_routes(router, requests);
    server::add_props_routes(router, model, requests, flags.slots);
    if (flags.metrics) server::add_metrics_route(router, metrics);
    server::add_chat_routes(router, model, api);
    server::add_responses_routes(router, model, api);
    server::add_messages_routes(router, model, api);
    server::add_completions_routes(router, model, api);
    server::add_token_routes(router, model, api);
    if (flags.page) server::add_page_routes(router, server::page_assets(), flags.api_prefix);
  }
  RequestPath(const RequestPath&) = delete;
  RequestPath& operator=(const RequestPath&) = delete;

  Result<std::unique_ptr<server::HttpServer>> listen(const server::ServerOptions& options,
                                                     server::KeyStore& keys) {
    server::HttpServer::Parts parts;
    parts.router = &router;
    parts.keys = &keys;
    parts.lifecycle = &lifecycle;
    parts.on_finished = [this](const server::RequestRecord& record) {
      log_request(record);
      metrics.count_request(record);
    };
    return server::HttpServer::start(options, parts);
  }

  server::Lifecycle lifecycle;
  server::ServedModel model;
  server::Admission admission;
  server::Router router;
  server::RequestRegistry requests;
  server::WarningLog warning_log;
  server::Metrics metrics;
  server::ApiOptions api;
};

// Error: what cannot be opened, or does not run.
Result<std::unique_ptr<Engine>> open_warm_engine(const ServeFlags& flags, EngineOptions options,
                                                 server::Lifecycle& lifecycle) {
  options.progress = [&](uint64_t done, uint64_t total) {
    lifecycle.set_loading("reading", total == 0 ? 0 : double(done) / double(total));
  };
  TuningNote note;
  INVAR_TRY(auto engine, flags.engine.backend == kScriptedBackend
                             ? open_scripted(options.model, options)
                             : open_tuned_engine(options, {}, &note));
  if (!note.text.empty())
    log(note.is_warning ? LogLevel::kWarning : LogLevel::kInfo, "%s", note.text.c_str());
  lifecycle.set_loading("warm-up", 1);
  INVAR_TRY_VOID(warm_up(*engine));
  return engine;
}

// The end that a signal asks for.
int drain(const ServeFlags& flags, int signal, RequestPath& requests, server::HttpServer& http) {
  const std::chrono::seconds most(flags.drain_seconds);
  const std::chrono::seconds room = signal == SIGINT ? std::min(kInterruptDrain, most) : most;
  log(LogLevel::kInfo, "stopping, running requests may take %lld s more",
      static_cast<long long>(room.count()));
  requests.lifecycle.set_draining();
  requests.requests.drop_queued(*requests.lifecycle.refusal());  // they would not start in time
  const bool ended = http.drain(room);
  log(LogLevel::kInfo, "stopped");
  // A handler that still runs uses the engine: nothing may be destroyed under it. And nothing is
  // left to write.
  if (!ended) ::_exit(kExitOk);
  return kExitOk;
}

int serve(const ServeFlags& flags) {
  end_mistakes_as_fatal(flags.termination_log);
  // Bodies and replies come and go in sizes that would else raise these thresholds for good and
  // keep freed memory.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 4 << 20);
  const auto end = [&](const Error& error, int code) {
    return fatal(flags.termination_log, error.message, code);
  };
  if (const Result<void> fits = check_together(flags); !fits) return end(fits.error(), kExitUsage);
  if (const Result<void> said = start_log(flags); !said)
    return end(with_context("--log-file", said.error()), kExitUsage);
  if (const Result<void> drafter = check_drafter(flags); !drafter)
    return end(drafter.error(), kExitUnsupported);

  Result<std::unique_ptr<server::KeyStore>> opened_keys =
      server::KeyStore::open({.keys = split(flags.api_keys, ','), .file = flags.api_key_file});
  if (!opened_keys) return end(opened_keys.error(), kExitUsage);
  Signals& signals = Signals::start(*std::move(opened_keys));
  server::KeyStore& keys = signals.keys();
  const Result<server::ServerOptions> options = server_options(flags, keys.has_keys());
  if (!options)
    return end(options.error(), options.error().code == ErrorCode::kIo ? kExitAddress : kExitUsage);
  const Result<std::string> path = model_path(flags);
  if (!path)
    return end(path.error(), path.error().code == ErrorCode::kInvalidArgument
                                 ? kExitUsage
                                 : exit_code(path.error().code));
  const bool is_scripted = flags.engine.backend == kScriptedBackend;
  const Result<BackendInfo> backend = is_scripted ? scripted_info() : backend_info(flags.engine);
  if (!backend) return end(backend.error(), open_exit_code(backend.error(), *path));

  // The engine goes after the server, whose handlers use it.
  std::unique_ptr<Engine> engine;
  RequestPath requests(flags, is_scripted ? kScriptedBackend : *path, *backend, keys,
                       options->origin.check_host);
  Result<std::unique_ptr<server::HttpServer>> started = requests.listen(*options, keys);
  if (!started) return end(started.error(), kExitAddress);
  const std::unique_ptr<server::HttpServer> http = *std::move(started);
  requests.metrics.set_server(http.get());
  // On standard output, for who started us with --port 0.
  for (const std::string& address : http->addresses()) print("http://" + address + "\n");
  log(LogLevel::kInfo, "listening, %zu API keys, loading %s", keys.num_keys(), path->c_str());

  EngineOptions to_open = engine_options(flags, *path);
  const Result<Window> window = choose_window(flags, *path, to_open.max_sequences);
  if (!window) return end(window.error(), open_exit_code(window.error(), *path));
  to_open.context = window->context;
  const auto begin = std::chrono::steady_clock::now();
  Result<std::unique_ptr<Engine>> opened = open_warm_engine(flags, to_open, requests.lifecycle);
  if (!opened) return end(opened.error(), open_exit_code(opened.error(), *path));
  engine = *std::move(opened);
  requests.model.set_engine(engine.get(), to_open.max_sequences, window->source,
                            requests.api.defaults);
  signals.serving();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  requests.metrics.set_load_seconds(took.count());
  requests.lifecycle.set_ready();
  lock_memory(flags);
  report_start(engine->description(),
               {took, http->addresses(), keys.num_keys(), to_open.max_sequences, window->source});
  const std::unique_ptr<server::Watchdog> watchdog = watch_for_stall(
      *engine, flags.watchdog_seconds, requests.lifecycle, requests.metrics, flags.termination_log);
  return drain(flags, signals.wait(), requests, *http);
}

}  // namespace

std::function<int()> add_serve(FlagSet& flags) {
  auto options = std::make_shared<ServeFlags>();
  add_serve_flags(flags, *options);
  return [options] { return serve(*options); };
}

}  // namespace invar::cli
