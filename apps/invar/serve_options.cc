#include "serve_options.h"

#include <algorithm>
#include <cstdlib>

#include "models_folder.h"
#include "server/http/listen_sockets.h"
#include "words.h"

namespace invar::cli {
namespace {

constexpr int kDefaultPort = 8080;
constexpr int kDefaultSequences = 4;

int num_sequences(const ServeFlags& flags) {
  return flags.max_sequences > 0 ? static_cast<int>(flags.max_sequences) : kDefaultSequences;
}

server::RequestDefaults request_defaults(const DefaultFlags& flags) {
  server::RequestDefaults defaults;
  defaults.temperature = flags.temperature;
  defaults.top_p = flags.top_p;
  defaults.min_p = flags.min_p;
  defaults.repetition_penalty = flags.repetition_penalty;
  defaults.presence_penalty = flags.presence_penalty;
  defaults.frequency_penalty = flags.frequency_penalty;
  if (flags.top_k) defaults.top_k = std::max<int64_t>(*flags.top_k, 0);
  defaults.repeat_last_n = flags.repeat_last_n;
  defaults.seed = flags.seed;
  defaults.max_tokens = flags.max_tokens == 0 ? -1 : flags.max_tokens;
  defaults.ignore_end = flags.ignore_end;
  // Checked when the flags were read.
  if (Result<Json> kwargs = Json::parse(flags.template_kwargs); kwargs)
    defaults.template_kwargs = *std::move(kwargs);
  if (flags.reasoning != "auto") defaults.thinking = flags.reasoning == "on";
  defaults.reasoning_effort = flags.reasoning_effort;
  defaults.reasoning_format = flags.reasoning_format;
  defaults.reasoning_budget = flags.reasoning_budget;
  defaults.budget_message = flags.budget_message;
  return defaults;
}

}  // namespace

Result<server::ServerOptions> server_options(const ServeFlags& flags, bool has_keys) {
  server::ServerOptions options;
  options.hosts = split(flags.host, ',');
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
  options.origin.allowed_hosts = split(flags.allowed_hosts, ',');
  options.origin.cors_origins = split(flags.cors_origins, ',');
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
  std::vector<std::string> names = split(flags.alias, ',');
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
  options.any_model_name = flags.any_model_name.value_or(is_private);
  options.clamp_max_tokens = flags.clamp_max_tokens;
  options.strict_fields = flags.strict_fields;
  options.keep_attribution = flags.keep_attribution;
  options.skip_parsing = flags.defaults.skip_parsing;
  options.defaults = request_defaults(flags.defaults);
  options.salt_per_key = keys.has_keys();  // their number may change while it runs
  options.sse_ping_seconds = static_cast<int>(flags.sse_ping_seconds);
  return options;
}

server::MetricsOptions metrics_options(const ServeFlags& flags) {
  server::MetricsOptions options;
  options.open = flags.metrics_open;
  options.vllm = options.llamacpp = false;
  for (const std::string& word : split(flags.metrics_compat, ',')) {
    if (word == "vllm")
      options.vllm = true;
    else if (word == "llamacpp")
      options.llamacpp = true;
    else if (word == "vllm-old")
      options.vllm = options.vllm_old = true;
  }
  return options;
}

// The one template that goes by a name.
constexpr const char* kChatMl =
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

int64_t prefix_cache_bytes(const ServeFlags& flags) {
  if (!flags.use_prefix_cache) return 0;
  return flags.cache_mib < 0 ? -1 : flags.cache_mib << 20;
}

EngineOptions engine_options(const ServeFlags& flags, const std::string& path) {
  EngineOptions options = flags.engine.options(path);
  options.max_sequences = num_sequences(flags);
  options.prefix_cache_bytes = prefix_cache_bytes(flags);
  if (flags.cache_folder != "off") options.prefix_cache_folder = flags.cache_folder;
  options.prefix_cache_folder_bytes = flags.cache_folder_mib << 20;
  options.chat_template =
      flags.defaults.chat_template == "chatml" ? kChatMl : flags.defaults.chat_template;
  // A step's rows are all of prompts, or nearly: the smaller bound is the one that holds.
  const int64_t rows = flags.prompt_rows > 0 && flags.batch_rows > 0
                           ? std::min(flags.prompt_rows, flags.batch_rows)
                           : std::max(flags.prompt_rows, flags.batch_rows);
  if (rows > 0) options.prefill_chunk = static_cast<int>(rows);
  return options;
}

server::AdmissionLimits admission_limits(const ServeFlags& flags) {
  server::AdmissionLimits limits;
  limits.max_running = num_sequences(flags);
  limits.max_waiting = static_cast<int>(flags.max_waiting);
  limits.max_of_key = static_cast<int>(flags.max_of_key);
  return limits;
}

LogOptions log_options(const LogFlags& flags, bool is_terminal) {
  LogOptions options;
  options.to_stderr = !flags.disable;
  options.file = flags.file;
  options.jsonl = flags.jsonl;
  options.timestamps = flags.timestamps;
  options.prefix = flags.prefix;
  options.color = flags.colors == "on" || (flags.colors == "auto" && is_terminal);
  return options;
}

LogLevel log_level(const LogFlags& flags) {
  if (flags.verbose || flags.verbosity >= 4) return LogLevel::kDebug;
  return flags.verbosity == 3   ? LogLevel::kInfo
         : flags.verbosity == 2 ? LogLevel::kWarning
                                : LogLevel::kError;
}

}  // namespace invar::cli
