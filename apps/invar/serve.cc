// `invar serve`: one model over HTTP. Server and engine are started in that order, and ended on a
// signal; what requests mean is src/server's business. Flags: serve_flags.h, serve_options.h.
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>

#include "base/log.h"
#include "commands.h"
#include "exit_codes.h"
#include "fatal.h"
#include "model_files.h"
#include "models_folder.h"
#include "scripted.h"
#include "serve_options.h"
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
  log(LogLevel::kInfo, "request %s %s %s status %d%s%s in %lld ms", record.request_id.c_str(),
      record.method.empty() ? "-" : record.method.c_str(),
      record.route.empty() ? "-" : record.route.c_str(), record.status,
      record.error_code.empty() ? "" : " ", record.error_code.c_str(),
      static_cast<long long>(record.duration.count()));
}

Result<std::string> model_path(const ServeFlags& flags) {
  if (flags.engine.backend == kScriptedBackend) return script_path(flags.script, flags.model);
  if (flags.model.empty())
    return invalid_argument("MODEL is missing; `invar serve --help` shows how it is used");
  return resolve_model(flags.model);
}

int serve(const ServeFlags& flags) {
  // Bodies and replies come and go in sizes that would else raise these thresholds for good and
  // keep freed memory.
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
  ::mallopt(M_TRIM_THRESHOLD, 4 << 20);
  set_log_level(LogLevel::kInfo);

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
  server::Router router(flags.api_prefix);
  server::add_probe_routes(router, lifecycle);
  server::add_model_routes(router, model);
  server::RequestRegistry requests;
  server::add_request_routes(router, requests);
  server::add_props_routes(router, model, requests, !flags.no_slots);
  server::Metrics metrics(*metrics_of, model, requests, lifecycle);
  server::add_metrics_route(router, metrics);
  server::ApiOptions api = api_options(flags, model.names(), **keys, options->origin.check_host);
  api.requests = &requests;
  const auto engine_of = [&model] { return model.engine(); };
  server::add_chat_routes(router, engine_of, api);
  server::add_responses_routes(router, engine_of, api);
  server::add_messages_routes(router, engine_of, api);
  server::add_completions_routes(router, engine_of, api);
  server::add_token_routes(router, engine_of, api);
  server::add_page_routes(router, server::page_assets(), flags.api_prefix);

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
  to_open.progress = [&](uint64_t done, uint64_t total) {
    lifecycle.set_loading("reading", total == 0 ? 0 : double(done) / double(total));
  };
  const auto begin = std::chrono::steady_clock::now();
  std::string tuning_note;
  Result<std::unique_ptr<Engine>> opened =
      is_scripted ? open_scripted(*path, to_open) : open_tuned_engine(to_open, {}, &tuning_note);
  if (!opened)
    return fatal(flags.termination_log, opened.error().message, exit_code(opened.error().code));
  engine = *std::move(opened);
  if (!tuning_note.empty()) log(LogLevel::kInfo, "%s", tuning_note.c_str());
  lifecycle.set_loading("warm-up", 1);
  if (const Result<void> warm = warm_up(*engine); !warm)
    return fatal(flags.termination_log, warm.error().message, exit_code(warm.error().code));
  model.set_engine(engine.get(), to_open.max_sequences);
  signals.serving();
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  metrics.set_load_seconds(took.count());
  lifecycle.set_ready();
  report_start(engine->description(), took);
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
