// The flags of `invar serve`: what they are called and where their values go. What the values mean
// to server and engine: serve_options.h.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "options.h"

namespace invar::cli {

// Defaults of request fields; sampling is SamplingFlags' own.
struct DefaultFlags {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, repeat_last_n;
  int64_t seed = -1, max_tokens = -1;
  bool ignore_end = false;
  std::string chat_template, template_kwargs;
  std::string reasoning_format = "auto", reasoning = "auto", reasoning_effort;
  int64_t reasoning_budget = -1;
  std::string budget_message;
  bool skip_parsing = false;
};

struct LogFlags {
  std::string file, colors = "auto";
  bool disable = false, jsonl = false, timestamps = false, prefix = true, verbose = false;
  int64_t verbosity = 3;
};

struct ServeFlags {
  std::string model_word, model;  // MODEL, --model
  std::string script;             // in place of a model, scripted.h
  std::string config;             // read by launch_arguments.h
  std::string alias;
  std::string host = "127.0.0.1";
  std::optional<int64_t> port, listen_fd;
  std::string api_prefix;
  bool page = true;
  std::string api_keys, api_key_file, allowed_hosts, cors_origins;
  bool insecure_no_key = false;
  int64_t num_io_threads = 2, max_body_bytes = 16 << 20, stall_seconds = 30, drain_seconds = 8;
  int64_t max_sequences = -1, sse_ping_seconds = 10, cache_mib = -1;
  int64_t max_waiting = 256, max_of_key = 0;
  int64_t batch_rows = 0, prompt_rows = 0;
  bool use_prefix_cache = true;
  std::string context = "0";  // a number or "auto"
  std::optional<bool> any_model_name;
  bool clamp_max_tokens = false, strict_fields = false;
  bool keep_attribution = false;
  bool mlock = false;
  std::string load_mode = "auto", drafter = "none", spec_type = "none";
  std::string cache_folder;  // empty: none
  int64_t cache_folder_mib = 8192;
  std::string metrics_compat = "vllm,llamacpp";
  bool metrics = true, metrics_open = false, slots = true;
  int64_t watchdog_seconds = 30;
  std::string termination_log;
  EngineFlags engine;
  DefaultFlags defaults;
  LogFlags log;
  // About what was given on the command line, to be logged at the start.
  std::shared_ptr<std::vector<std::string>> warnings;
};

// `target` outlives the run of the command.
void add_serve_flags(FlagSet& flags, ServeFlags& target);

}  // namespace invar::cli
