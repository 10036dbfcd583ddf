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
#include "signals.h"
#include "stall.h"
#include "start_report.h"
#include "terminal.h"
#include "tuning.h"

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
  if (!flags.model.empty() && !flags.model_word.empty() && flags.model != flags.model_word)
    return invalid_argument("the model is given twice: '%s' and --model '%s'",
                            flags.model_word.c_str(), flags.model.c_str());
  const std::string& model = flags.model.empty() ? flags.model_word : flags.model;
  if (flags.engine.backend == kScriptedBackend) return script_path(flags.script, model);
  if (model.empty())
    return invalid_argument(
        "MODEL is missing (also --model); `invar serve --help` shows how it is used");
  return resolve_model(model);
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

// How the process speaks, before it says anything. Error: the log file.
Result<void> start_log(const ServeFlags& flags) {
  end_mistakes_as_fatal(flags.termination_log);
  set_log_level(log_level(flags.log));
  INVAR_TRY_VOID(set_log_options(log_options(flags.log, ::isatty(STDERR_FILENO) == 1)));
  for (const std::string& warning : *flags.warnings) log(LogLevel::kWarning, "%s", warning.c_str());
  if (flags.context != "0" && flags.max_sequences > 1)
    log(LogLevel::kWarning,
        "--ctx-size is the window of each request: it is not divided by --parallel");
  return {};
}

int serve(const ServeFlags& flags) {
  // Bodies and replies come and go in sizes that would else raise these thresholds for good and
  // keep freed memory.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 4 << 20);
  if (const Result<void> said = start_log(flags); !said)
    return fatal(flags.termination_log, "--log-file: " + said.error().message, kExitUsage);
  if (const Result<void> drafter = check_drafter(flags); !drafter)
    return fatal(flags.termination_log, drafter.error().message, kExitUnsupported);

  const Result<std::unique_ptr<server::KeyStore>> keys =
      server::KeyStore::open({.keys = split_list(flags.api_keys), .file = flags.api_key_file});
  if (!keys) return fatal(flags.termination_log, keys.error().message, kExitUsage);
  Signals signals(**keys);
  const Result<server::ServerOptions> options = server_options(flags, (*keys)->has_keys());
  if (!options)
    return fatal(flags.termination_log, options.error().message,
                 options.error().code == ErrorCode::kIo ? kExitAddress : kExitUsage);
  const Result<server::MetricsOptions> metrics_of = metrics_options(flags);
  if (!metrics_of) return fatal(flags.termination_log, metrics_of.error().message, kExitUsage);
  const bool is_scripted = flags.engine.backend == kScriptedBackend;
  const Result<std::string> path = model_path(flags);
  if (!path)
    return fatal(flags.termination_log, path.error().message,
                 path.error().code == ErrorCode::kInvalidArgument ? kExitUsage
                                                                  : exit_code(path.error().code));
  const Result<BackendInfo> backend = is_scripted ? scripted_info() : backend_info(flags.engine);
  if (!backend)
    return fatal(flags.termination_log, backend.error().message, exit_code(backend.error().code));
  const BackendInfo& info = *backend;

  // The engine goes after the server, whose handlers use it.
  std::unique_ptr<Engine> engine;
  server::Lifecycle lifecycle;
  server::ServedModel model(served_names(flags, is_scripted ? kScriptedBackend : *path), info.name,
                            info.arithmetic_id, info.isa);
  server::Admission admission(admission_limits(flags));
  server::Router router(flags.api_prefix);
  router.set_guard([&](server::Handler handler) { return admission.guard(std::move(handler)); });
  server::add_probe_routes(router, lifecycle);
  server::add_model_routes(router, model);
  server::RequestRegistry requests;
  server::add_request_routes(router, requests);
  server::add_props_routes(router, model, requests, flags.slots);
  server::Metrics metrics(*metrics_of, model, requests, lifecycle);
  server::add_metrics_route(router, metrics);
  server::ApiOptions api = api_options(flags, model.names(), **keys, options->origin.check_host);
  api.requests = &requests;
  server::add_chat_routes(router, model, api);
  server::add_responses_routes(router, model, api);
  server::add_messages_routes(router, model, api);
  server::add_completions_routes(router, model, api);
  server::add_token_routes(router, model, api);
  if (flags.page) server::add_page_routes(router, server::page_assets(), flags.api_prefix);

  server::HttpServer::Parts parts;
  parts.router = &router;
  parts.keys = keys->get();
  parts.lifecycle = &lifecycle;
  parts.on_finished = [&metrics](const server::RequestRecord& record) {
    log_request(record);
    metrics.count_request(record);
  };
  Result<std::unique_ptr<server::HttpServer>> started = server::HttpServer::start(*options, parts);
  if (!started) return fatal(flags.termination_log, started.error().message, kExitAddress);
  const std::unique_ptr<server::HttpServer> http = *std::move(started);
  metrics.set_server(http.get());
  // On standard output, for who started us with --port 0.
  for (const std::string& address : http->addresses()) print("http://" + address + "\n");
  log(LogLevel::kInfo, "listening, %zu API keys, loading %s", (*keys)->num_keys(), path->c_str());

  EngineOptions to_open = engine_options(flags, *path);
  const Result<Window> window = choose_window(flags, *path, to_open.max_sequences);
  if (!window)
    return fatal(flags.termination_log, window.error().message, exit_code(window.error().code));
  to_open.context = window->context;
  to_open.progress = [&](uint64_t done, uint64_t total) {
    lifecycle.set_loading("reading", total == 0 ? 0 : double(done) / double(total));
  };
  const auto begin = std::chrono::steady_clock::now();
  std::string tuning_note;
  Result<std::unique_ptr<Engine>> opened =
      is_scripted ? open_scripted(*path, to_open) : open_tuned_engine(to_open, {}, &tuning_note);
  if (!opened)
    return fatal(flags.termination_log, opened.error().message,
                 open_exit_code(opened.error(), *path));
  engine = *std::move(opened);
  if (!tuning_note.empty()) log(LogLevel::kInfo, "%s", tuning_note.c_str());
  lifecycle.set_loading("warm-up", 1);
  if (const Result<void> warm = warm_up(*engine); !warm)
    return fatal(flags.termination_log, warm.error().message, exit_code(warm.error().code));
  model.set_engine(engine.get(), to_open.max_sequences, window->source, api.defaults);
  signals.serving();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  metrics.set_load_seconds(took.count());
  lifecycle.set_ready();
  lock_memory(flags);
  report_start(engine->description(), {took, http->addresses(), (*keys)->num_keys(),
                                       to_open.max_sequences, window->source});
  const std::unique_ptr<server::Watchdog> watchdog =
      watch_for_stall(*engine, flags.watchdog_seconds, lifecycle, metrics, flags.termination_log);

  const int signal = signals.wait();
  const std::chrono::seconds drain =
      signal == SIGINT ? std::min(kInterruptDrain, std::chrono::seconds(flags.drain_seconds))
                       : std::chrono::seconds(flags.drain_seconds);
  log(LogLevel::kInfo, "stopping, running requests may take %lld s more",
      static_cast<long long>(drain.count()));
  lifecycle.set_draining();
  requests.drop_queued(*lifecycle.refusal());  // they would not start in time
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
  add_serve_flags(flags, *options);
  return [options] { return serve(*options); };
}

}  // namespace invar::cli
