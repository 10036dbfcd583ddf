#include "serve_flags.h"

#include "scripted.h"

namespace invar::cli {

void add_serve_flags(FlagSet& flags, ServeFlags& target) {
  add_model(flags, target.model, !scripted_backend_words().empty());
  flags.take_last_and_environment();
  flags.group("Where it listens");
  flags.text("--host", "LIST", target.host,
             "Names or addresses, comma between; '::' is IPv6 and IPv4.", "127.0.0.1");
  flags.whole("--port", "N", {0, 65535}, target.port,
              "0 takes a free one and prints it. Default: the variable PORT, else 8080.");
  flags.whole("--listen-fd", "N", {0, 1 << 20}, target.listen_fd,
              "A bound socket that we inherit, instead of --host and --port.");
  flags.text("--api-prefix", "PATH", target.api_prefix, "Serves all routes below PATH.");
  flags.text("--alias", "LIST", target.alias,
             "What requests call the model, the first name is shown. Default: its file name.");
  flags.toggle("--any-model-name", target.any_model_name,
               "Answers whatever model a request names; on without keys on this machine.");
  flags.toggle("--clamp-max-tokens", target.clamp_max_tokens,
               "Lowers a max_tokens that passes the window, instead of an error.");
  flags.toggle("--strict-fields", target.strict_fields,
               "Refuses requests with unknown fields, instead of a warning.");
  flags.toggle("--keep-attribution", target.keep_attribution,
               "Keeps what agents put before their system text; it changes with every request.");
  flags.group("Who may use it");
  flags.text("--api-key", "LIST", target.api_keys,
             "Keys, comma between. Seen in `ps`; a file or INVAR_API_KEY is not.");
  flags.text("--api-key-file", "FILE", target.api_key_file,
             "One key a line, mode 0600; read again when it changes.");
  flags.toggle("--insecure-no-key", target.insecure_no_key,
               "Lets other machines in without a key.");
  flags.text("--allowed-hosts", "LIST", target.allowed_hosts,
             "More names for the Host header, without keys.");
  flags.text("--cors-origins", "LIST", target.cors_origins,
             "Origins whose pages may call us; 'localhost': any port of this machine; '*': all.");
  flags.group("Limits");
  flags.whole("--parallel,--max-num-seqs", "N", {1, 1024}, target.max_sequences,
              "Sequences that run at once.", "4");
  flags.whole("--cache-ram", "MIB", {-1, int64_t{1} << 30}, target.cache_mib,
              "Keys and values kept for later prompts that begin alike; 0: none; -1: whatever "
              "running requests leave.",
              "-1");
  flags.text("--cache-disk", "DIR", target.cache_folder,
             "Keeps them in DIR as well, between starts (docs/operations.md).", "off");
  flags.whole("--cache-disk-size", "MIB", {1, int64_t{1} << 30}, target.cache_folder_mib,
              "Bound of that folder.", "8192");
  flags.whole("--threads-http", "N", {1, 64}, target.num_io_threads, "I/O threads.", "2");
  flags.whole("--max-body-bytes", "N", {1024, int64_t{1} << 30}, target.max_body_bytes,
              "Largest request body.", "16777216");
  flags.whole("--timeout", "S", {1, 3600}, target.stall_seconds,
              "Seconds a stream waits for a reader that takes nothing.", "30");
  flags.whole("--sse-ping-interval", "S", {-1, 600}, target.sse_ping_seconds,
              "Seconds of silence before a stream gets a ping; -1: never.", "10");
  flags.whole("--drain-timeout", "S", {0, 3600}, target.drain_seconds,
              "Seconds that running requests have after SIGTERM; after Ctrl-C at most 3.", "8");
  flags.text("--termination-log", "FILE", target.termination_log,
             "Where the reason of a failed start is written, if it is writable.",
             "/dev/termination-log");
  flags.group("What operators see");
  flags.toggle("--metrics", target.metrics, "GET /metrics is always there.");
  flags.toggle("--metrics-open", target.metrics_open, "GET /metrics answers without a key.");
  flags.text("--metrics-compat", "LIST", target.metrics_compat,
             "Other servers' names beside our own: vllm, llamacpp, vllm-old, or none.",
             "vllm,llamacpp");
  flags.toggle("--slots", target.slots, "GET /slots is there unless --no-slots.");
  flags.toggle("--no-slots", target.no_slots, "GET /slots is not there.");
  flags.whole(
      "--watchdog", "S", {0, 86400}, target.watchdog_seconds,
      "Ends the process, exit code 71, when the engine stands still for S seconds with work "
      "to do; 0: never.",
      "30");
  target.engine.add_chat_template(flags);
  target.engine.add_backend(flags, scripted_backend_words());
  add_script_flag(flags, target.script);
  target.engine.add_context(flags);
  flags.footer(
      "Each flag has a variable: --api-key is INVAR_API_KEY. A flag given twice: the last one "
      "wins.\n"
      "Exit code 0 after one SIGTERM or Ctrl-C, 128+n at once after a second one.\n\n"
      "Examples:\n"
      "  invar serve SmolLM2-135M-Instruct\n"
      "  invar serve model.gguf --host 0.0.0.0 --api-key-file keys.txt\n"
      "  curl http://127.0.0.1:8080/v1/models");
}

}  // namespace invar::cli
