#include "serve_flags.h"

#include "base/json.h"
#include "fatal.h"
#include "foreign_flags.h"
#include "scripted.h"
#include "server/http/origin_check.h"
#include "words.h"

namespace invar::cli {
namespace {

constexpr int64_t kMaxContext = int64_t{1} << 24;
constexpr size_t kMaxKwargs = 64;
constexpr const char* kChatMlName = "chatml";

std::string check_context(const std::string& text) {
  int64_t value = 0;
  if (text == "auto" || (parse_number(text, value) && value >= 0 && value <= kMaxContext))
    return {};
  return format("'%s' is neither auto nor a whole number from 0 to %lld", text.c_str(),
                static_cast<long long>(kMaxContext));
}

std::string check_host(const std::string& text) {
  return text.find(".sock") == std::string::npos
             ? ""
             : "'" + text + "': sockets with a path are not built; give a name or address";
}

std::string check_template(const std::string& text) {
  const bool is_jinja =
      text.find("{%") != std::string::npos || text.find("{{") != std::string::npos;
  if (is_jinja || text == kChatMlName) return {};
  return "'" + text + "' is neither Jinja text nor chatml; a file goes with --chat-template-file";
}

std::string check_kwargs(const std::string& text) {
  const Result<Json> json = Json::parse(text);
  if (!json) return "is no JSON: " + json.error().message;
  if (!json->is_object()) return "must be a JSON object";
  if (json->members().size() > kMaxKwargs) return format("may have at most %zu keys", kMaxKwargs);
  for (const auto& [key, value] : json->members()) {
    if (value.is_array() || value.is_object()) return "'" + key + "' must be a scalar value";
    if (is_one_of(key, {"messages", "tools", "chat_template", "tokenize", "add_generation_prompt",
                        "bos_token", "eos_token"}))
      return "'" + key + "' is the server's own";
  }
  return {};
}

// "": none.
std::string check_api_prefix(const std::string& text) {
  const bool is_path = text.starts_with('/') && text.find("//") == std::string::npos &&
                       text.find_first_of("?# \t") == std::string::npos;
  if (text.empty() || is_path) return {};
  return "'" + text + "' is no path: it begins with / and has no //, ?, # or space, as /llm";
}

std::string check_cors_origins(const std::string& text) {
  for (const std::string& origin : split(text, ','))
    if (const Result<void> check = server::check_cors_origin(origin); !check)
      return check.error().message;
  return {};
}

std::string check_metrics_compat(const std::string& text) {
  const FlagSet::Check check = one_of({"vllm", "llamacpp", "vllm-old", "none"});
  for (const std::string& word : split(text, ','))
    if (std::string fault = check(word); !fault.empty()) return fault;
  return {};
}

void add_addresses(FlagSet& flags, ServeFlags& target) {
  flags.group("Where it listens");
  flags.checked("--host", "LIST", target.host, check_host,
                "Names or addresses, comma between; '::' is IPv6 and IPv4.", "127.0.0.1");
  flags.whole("--port", "N", {0, 65535}, target.port,
              "0 takes a free one and prints it. Default: the variable PORT, else 8080.");
  flags.whole("--listen-fd", "N", {0, 1 << 20}, target.listen_fd,
              "A bound socket that we inherit, instead of --host and --port.");
  flags.checked("--api-prefix", "PATH", target.api_prefix, check_api_prefix,
                "Serves all routes below PATH, as /llm.");
  flags.toggle("--ui,--webui,--no-ui,--no-webui", target.page, "The page at /.");
}

void add_access(FlagSet& flags, ServeFlags& target) {
  flags.group("Who may use it");
  flags.text("--api-key", "LIST", target.api_keys,
             "Keys, comma between. Seen in `ps`; a file or INVAR_API_KEY is not.");
  flags.text("--api-key-file", "FILE", target.api_key_file,
             "One key a line, mode 0600; read again when it changes.");
  flags.toggle("--insecure-no-key", target.insecure_no_key,
               "Lets other machines in without a key.");
  flags.text("--allowed-hosts", "LIST", target.allowed_hosts,
             "More names for the Host header, without keys.");
  flags.checked(
      "--cors-origins", "LIST", target.cors_origins, check_cors_origins,
      "Origins whose pages may call us; 'localhost': any port of this machine; '*': all.");
  flags.whole("--key-max-running", "N", {0, 1 << 20}, target.max_of_key,
              "Requests of one key that run or wait; more get 429 key_limit. 0: no limit.", "0");
}

void add_model_flags(FlagSet& flags, ServeFlags& target) {
  flags.group("Model and window");
  flags.text("--model,-m", "FILE", target.model, "The same as MODEL.");
  flags.text("--alias,--served-model-name,--name,-a", "LIST", target.alias,
             "What requests call the model, the first name is shown. Default: its file name.");
  flags.checked("--ctx-size,--max-model-len,--context,-c", "N", target.context, check_context,
                "Positions of one request. 0: the model's full window, and a refusal that says "
                "what fits if it does not; auto: the largest that fits.",
                "0");
  flags.whole("--parallel,--max-num-seqs,-np", "N", {-1, 1024}, target.max_sequences,
              "Sequences that run at once; each has the whole window. -1: 4.", "-1");
  target.engine.add_kv_bytes(flags);
  flags.group("Model and window");
  flags.toggle("--mlock", target.mlock, "Keeps the memory of the model from being swapped out.");
  flags.choice("--load-mode,-lm", {"none", "mmap", "mlock", "mmap+mlock", "auto", "dio"},
               target.load_mode, "Those with mlock are --mlock; the others change nothing.",
               "auto");
  flags.text("--drafter,--model-draft,-md", "FILE", target.drafter,
             "A model that drafts. Not built yet: a file is refused (exit 4), auto says so.",
             "none");
  flags.text("--spec-type", "TYPE", target.spec_type, "The same: only none is built.", "none");
}

void add_limits(FlagSet& flags, ServeFlags& target) {
  flags.group("Limits");
  flags.toggle("--cache-prompt,--no-cache-prompt", target.use_prefix_cache,
               "Keeps keys and values for later prompts that begin alike.");
  flags.whole("--cache-ram,-cram", "MIB", {-1, int64_t{1} << 30}, target.cache_mib,
              "Memory for them; 0: none; -1: whatever running requests leave.", "-1");
  flags.text("--cache-disk", "DIR", target.cache_folder,
             "Keeps them in DIR as well, between starts (docs/operations.md).", "off");
  flags.whole("--cache-disk-size", "MIB", {1, int64_t{1} << 30}, target.cache_folder_mib,
              "Bound of that folder.", "8192");
  flags.whole("--batch-size,-b", "N", {1, 65536}, target.batch_rows,
              "Rows of a step; speed only. Default: 512.");
  flags.whole("--ubatch-size,-ub", "N", {1, 65536}, target.prompt_rows,
              "Rows of a prompt in a step, at most --batch-size; speed only.");
  flags.whole("--max-queue", "N", {0, 1024}, target.max_waiting,
              "Requests that wait, and no more than 64 MiB of them; more get 429 queue_full. The "
              "engine has at most 1024 sequences, waiting and running.",
              "256");
  flags.whole("--threads-http", "N", {1, 64}, target.num_io_threads, "I/O threads.", "2");
  flags.whole("--max-body-bytes", "N", {1024, int64_t{1} << 30}, target.max_body_bytes,
              "Largest request body.", "16777216");
  flags.whole("--timeout,-to", "S", {1, 3600}, target.stall_seconds,
              "Seconds a stream waits for a reader that takes nothing.", "30");
  flags.whole("--sse-ping-interval", "S", {-1, 600}, target.sse_ping_seconds,
              "Seconds of silence before a stream gets a ping; -1: never.", "10");
  flags.whole("--drain-timeout", "S", {0, 3600}, target.drain_seconds,
              "Seconds that running requests have after SIGTERM; after Ctrl-C at most 3.", "8");
}

void add_request_rules(FlagSet& flags, ServeFlags& target) {
  flags.group("What requests may ask");
  flags.toggle("--any-model-name", target.any_model_name,
               "Answers whatever model a request names; on without keys on this machine.");
  flags.toggle("--clamp-max-tokens", target.clamp_max_tokens,
               "Lowers a max_tokens that passes the window, instead of an error.");
  flags.toggle("--strict-fields", target.strict_fields,
               "Refuses requests with unknown fields, instead of a warning.");
  flags.toggle("--keep-attribution", target.keep_attribution,
               "Keeps the lines that agents put before their system text.");
}

void add_defaults(FlagSet& flags, DefaultFlags& target) {
  flags.group("For fields that a request leaves out (default: the checkpoint's generation config)");
  flags.real("--temp,--temperature", "T", {0, 5}, target.temperature, "0 (greedy) to 5.");
  flags.whole("--top-k", "K", {-1, 1 << 22}, target.top_k, "-1 or 0: all.");
  flags.real("--top-p", "P", {0, 1, true}, target.top_p, "Above 0 to 1; 1: all.");
  flags.real("--min-p", "P", {0, 1}, target.min_p, "0 to 1; 0: all.");
  flags.real("--repeat-penalty,--repetition-penalty", "X", {0.01, 10}, target.repetition_penalty,
             "0.01 to 10; 1: off.");
  flags.whole("--repeat-last-n", "N", {-1, kMaxContext}, target.repeat_last_n,
              "Tokens that it looks at; -1: all. Default: 64 with --repeat-penalty.");
  flags.real("--presence-penalty", "X", {-2, 2}, target.presence_penalty, "-2 to 2; 0: off.");
  flags.real("--frequency-penalty", "X", {-2, 2}, target.frequency_penalty, "-2 to 2; 0: off.");
  flags.whole("--seed,-s", "N", {-1, INT64_MAX}, target.seed,
              "-1: a new one for each request, which is reported.", "-1");
  flags.whole("--n-predict,--predict,-n", "N", {-1, int64_t{1} << 40}, target.max_tokens,
              "Most tokens of a reply; -1 or 0: up to the window.", "-1");
  flags.toggle("--ignore-eos", target.ignore_end, "Goes on past end tokens.");
}

void add_templates(FlagSet& flags, ServeFlags& target) {
  flags.group("Chat template and reasoning");
  flags.text("--chat-template-file", "FILE", target.engine.chat_template_file,
             "Jinja file that replaces the checkpoint's own chat template.");
  DefaultFlags& d = target.defaults;
  flags.checked("--chat-template", "TEXT", d.chat_template, check_template,
                "The same as text, or chatml.");
  flags.checked("--chat-template-kwargs", "JSON", d.template_kwargs, check_kwargs,
                "Template variables, a JSON object; a request's own go over them.");
  flags.choice("--reasoning-format", {"auto", "deepseek", "none", "inline", "deepseek-legacy"},
               d.reasoning_format, "Where reasoning goes, unless a request says it.", "auto");
  flags.choice("--reasoning,-rea", {"on", "off", "auto"}, d.reasoning,
               "Whether the model thinks before it answers; auto: as its template has it.", "auto");
  flags.choice("--reasoning-effort", {"none", "minimal", "low", "medium", "high", "xhigh", "max"},
               d.reasoning_effort, "For templates that know it.");
  flags.whole("--reasoning-budget", "N", {-1, int64_t{1} << 40}, d.reasoning_budget,
              "Tokens of reasoning, then it is closed; 0: at once; -1: no limit.", "-1");
  flags.text("--reasoning-budget-message", "TEXT", d.budget_message,
             "Put before the end of reasoning that is closed so.");
  flags.toggle("--skip-chat-parsing", d.skip_parsing,
               "Leaves reasoning and tool calls in the text.");
}

void add_observation(FlagSet& flags, ServeFlags& target) {
  flags.group("What operators see");
  flags.toggle("--metrics", target.metrics, "GET /metrics.");
  flags.toggle("--metrics-open", target.metrics_open, "GET /metrics answers without a key.");
  flags.checked("--metrics-compat", "LIST", target.metrics_compat, check_metrics_compat,
                "Other servers' names beside our own: vllm, llamacpp, vllm-old, or none.",
                "vllm,llamacpp");
  flags.toggle("--slots,--no-slots", target.slots, "GET /slots.");
  flags.whole(
      "--watchdog", "S", {0, 86400}, target.watchdog_seconds,
      "Ends the process, exit code 71, when the engine stands still for S seconds with work "
      "to do; 0: never.",
      "30");
}

void add_logging(FlagSet& flags, LogFlags& target) {
  flags.group("Log");
  flags.text("--log-file", "FILE", target.file, "Log lines go there as well.");
  flags.toggle("--log-disable", target.disable, "No log lines on standard error.");
  flags.toggle("--log-jsonl,--no-log-jsonl", target.jsonl, "One JSON object a line.");
  flags.choice("--log-colors", {"on", "off", "auto"}, target.colors,
               "Colors on standard error; auto: on a terminal.", "auto");
  flags.toggle("--log-timestamps,--no-log-timestamps", target.timestamps, "UTC before each line.");
  flags.toggle("--log-prefix,--no-log-prefix", target.prefix, "'invar: info:' before each line.");
  flags.whole("--verbosity,--log-verbosity,-lv", "N", {0, 10}, target.verbosity,
              "0 and 1: errors; 2: warnings; 3: information; 4 and up: all.", "3");
  flags.toggle("--verbose,--log-verbose,-v", target.verbose, "All.");
}

}  // namespace

void add_serve_flags(FlagSet& flags, ServeFlags& target) {
  target.termination_log = kTerminationLog;
  target.warnings = flags.launch_warnings();
  add_model(flags, target.model_word, true);
  flags.for_launchers();
  add_addresses(flags, target);
  add_access(flags, target);
  add_model_flags(flags, target);
  target.engine.add_backend(flags, scripted_backend_words());
  add_script_flag(flags, target.script);
  add_templates(flags, target);
  add_defaults(flags, target.defaults);
  add_request_rules(flags, target);
  add_limits(flags, target);
  add_observation(flags, target);
  add_logging(flags, target.log);
  flags.group("The start itself");
  flags.text("--config", "FILE", target.config,
             "Lines of `key = value`, keys as flags without --.");
  flags.text("--termination-log", "FILE", target.termination_log,
             "Where the reason of a failed start is written, if it is writable.", kTerminationLog);
  add_foreign_flags(flags);
  flags.footer(
      "The command line of llama-server works too: `invar --model FILE --port N`, or a link named "
      "\nllama-server to this program.\n"
      "Each flag has a variable: --api-key is INVAR_API_KEY. A flag given twice: the last one "
      "wins.\n"
      "Flags go over variables, those over --config. `--no-NAME` turns NAME off.\n"
      "Exit code 0 after one SIGTERM or Ctrl-C, 128+n at once after a second one.\n\n"
      "Examples:\n"
      "  invar serve SmolLM2-135M-Instruct\n"
      "  invar serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
      "  curl http://127.0.0.1:8080/v1/models");
}

}  // namespace invar::cli
