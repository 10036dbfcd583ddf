// What chat and completions answers have in common: usage, timings, the `invar` object, names of
// endings, errors of the engine as errors of the API.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "invar/invar.h"
#include "server/choices.h"
#include "server/generation_fields.h"

namespace invar::server {

// Of all choices of one prompt, or of several prompts, added up.
struct Totals {
  int64_t num_prompt_tokens = 0, num_cached_tokens = 0, num_written_tokens = 0;
  int64_t num_completion_tokens = 0, num_reasoning_tokens = 0;
  double queue_ms = 0, prefill_ms = 0, decode_ms = 0;
  std::vector<std::string> token_shas;  // by choice

  void add_prompt(const GenerationResult& first, bool uses_cache);
  void add_choice(const GenerationResult& result);
};

Json usage_json(const Totals& totals);
Json timings_json(const Totals& totals);
Json invar_json(const Totals& totals, const ModelDescription& model,
                const GenerationFields& generation, const std::string& prompt_sha);

// "invar-0.1.0-cpu-1-5f0c91aa"
std::string system_fingerprint(const ModelDescription& model);

// "stop" or "length"; the matched stop string or id, or null.
const char* finish_reason(const GenerationResult& result);
Json stop_reason(const GenerationResult& result);

// Why a reply gave no answer, if it did not: a fault, or somebody cancelled it.
std::optional<ApiError> reply_error(const GenerationResult& result);
// The same of an error that the engine found while it computed.
ApiError running_error(const Error& error);

// Between pings of a stream; 0: none.
std::chrono::seconds ping_interval(const GenerationFields& generation);

Json ids_json(std::span<const int32_t> ids);

// What the routes that only count a prompt answer.
Json input_tokens_json(std::span<const int32_t> prompt_ids);

// An error of Engine::submit() or prompt_ids(), or of a reply that ended in one. Arguments that are
// wrong were found before; what is left is the template's doing.
ApiError engine_api_error(const Error& error);

}  // namespace invar::server
