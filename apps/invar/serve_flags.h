// The flags of `invar serve`: what they are called and where their values go. What the values mean
// to server and engine: serve_options.h.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "options.h"

namespace invar::cli {

struct ServeFlags {
  std::string model;
  std::string script;  // in place of a model, scripted.h
  std::string alias;
  std::string host = "127.0.0.1";
  std::optional<int64_t> port, listen_fd;
  std::string api_prefix;
  std::string api_keys, api_key_file, allowed_hosts, cors_origins;
  bool insecure_no_key = false;
  int64_t num_io_threads = 2, max_body_bytes = 16 << 20, stall_seconds = 30, drain_seconds = 8;
  int64_t max_sequences = 4, sse_ping_seconds = 10, cache_mib = -1;
  bool any_model_name = false, clamp_max_tokens = false, strict_fields = false,
       keep_attribution = false;
  std::string cache_folder;  // empty: none
  int64_t cache_folder_mib = 8192;
  std::string metrics_compat = "vllm,llamacpp";
  bool metrics = true, metrics_open = false, slots = true, no_slots = false;
  int64_t watchdog_seconds = 30;
  std::string termination_log = "/dev/termination-log";
  EngineFlags engine;
};

// `target` outlives the run of the command.
void add_serve_flags(FlagSet& flags, ServeFlags& target);

}  // namespace invar::cli
