// Flags that several commands share, and what they mean to the library.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/open.h"
#include "flags.h"
#include "invar/invar.h"

namespace invar::cli {

// The positional MODEL.
void add_model(FlagSet& flags, std::string& model, bool optional = false);

// The group of flags that EngineFlags adds.
inline constexpr const char* kWhereItRuns = "Where it runs";

// What commands that open a model share.
struct EngineFlags {
  std::string backend = "cpu";
  std::string cpu_isa;
  std::string activation_bits = "8";
  std::string cuda_switches;
  int64_t num_threads = 0;
  std::string packed_cache;        // a folder, "off", or "" for the default one
  int64_t packed_cache_gb = 32;    // 10^9 bytes
  bool packed_cache_wait = false;  // no flag: for commands that measure
  double step_slowdown = 2;        // likewise
  int64_t context = 0;
  int64_t kv_bytes = 0;
  int64_t state_cache_bytes = -1;
  std::string chat_template_file;

  void add_backend(FlagSet& flags, const std::vector<std::string>& more_backends = {});
  void add_context(FlagSet& flags);
  void add_kv_bytes(FlagSet& flags);
  void add_state_cache(FlagSet& flags);
  void add_chat_template(FlagSet& flags);
  EngineOptions options(const std::string& model_path) const;
};

// Sampling flags; those not given leave the checkpoint's own default in place.
struct SamplingFlags {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k;
  std::vector<std::string> logit_bias;  // "ID=BIAS"
  std::optional<int64_t> seed;

  void add(FlagSet& flags);
  // `defaults` with the flags over them. A missing seed is drawn when anything random happens.
  SamplingParams params(const SamplingParams& defaults) const;
};

// Of an error that opening `path` gave: what does not name the model's file is about a flag.
int open_exit_code(const Error& error, const std::string& path);

// Opens `model` (a path or a listed name) with a progress bar; prints errors itself and returns
// their exit code through `code`.
std::unique_ptr<Engine> open_engine(std::string_view command, const std::string& model,
                                    const EngineFlags& flags, int max_sequences, int& code,
                                    const WrapBackend& wrap = {});

}  // namespace invar::cli
