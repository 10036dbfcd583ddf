// The fields that every generating route has in common (specs/api.md section 4): limits, sampling,
// seed, stop strings, log-probabilities, cache and stream options.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "invar/invar.h"
#include "server/fields.h"

namespace invar::server {

class RequestRegistry;
class WarningLog;

// What the operator chose for fields that a request leaves out. Those not set here stay as the
// checkpoint has them.
struct RequestDefaults {
  std::optional<double> temperature, top_p, min_p;
  std::optional<double> repetition_penalty, presence_penalty, frequency_penalty;
  std::optional<int64_t> top_k, repeat_last_n;
  int64_t seed = -1;        // -1: a random one
  int64_t max_tokens = -1;  // -1: up to the window
  bool ignore_end = false;
  Json template_kwargs = Json::object();
  std::optional<bool> thinking = {};
  std::string reasoning_effort = {};  // "": the template's own
  std::string reasoning_format = "auto";
  int64_t reasoning_budget = -1;
  std::string budget_message = {};  // forced before the end of reasoning that passes the budget
};

// What routes know beside the body.
struct ApiOptions {
  std::vector<std::string> model_names = {};  // the first is primary
  bool any_model_name = false;  // others are answered by the primary model, with a warning
  bool clamp_max_tokens = false;
  bool strict_fields = false;
  bool keep_attribution = false;  // lines that agents put before their system text
  bool salt_per_key = false;      // callers with different keys share no keys and values
  bool skip_parsing = false;      // replies stay as they are: no reasoning apart, no calls
  int sse_ping_seconds = 10;
  RequestRegistry* requests = nullptr;  // where generating requests are entered while they run
  WarningLog* warning_log = nullptr;
  RequestDefaults defaults = {};
};

// What a request that says nothing is sampled with: the checkpoint's defaults, the operator's over
// them.
SamplingParams default_params(const ModelDescription& model, const RequestDefaults& defaults);

// The prompt and max_tokens of `request` are the route's to fill in.
struct GenerationFields {
  GenerationRequest request;
  std::string model;  // as the answer calls it
  int num_choices = 1;
  bool stream = false, include_usage = false, continuous_usage = false;
  bool return_token_ids = false;
  bool timings_per_token = false, return_progress = false;
  bool ends_at_window = false;  // it is the window that limits the output, not max_tokens
  int sse_ping_seconds = 10;    // <= 0: off
  int64_t max_tokens = -1;      // -1: up to the window
  bool max_tokens_is_default = false;
  Json metadata;  // echoed; null: none
  std::vector<Warning> warnings;
};

// Reads all of them; faults are in fields.error(). `allow_no_output`: max_tokens 0 is a value.
// Logprobs, whose form differs by route, are left out, and so is all that has to do with templates.
GenerationFields read_generation_fields(Fields& fields, const ModelDescription& model,
                                        const ApiOptions& options, bool allow_no_output,
                                        const std::string& key_digest);

// Checks prompt and output against the window (specs/api.md 2.3) and sets request.max_tokens.
void fit_window(Fields& fields, GenerationFields& generation, const char* prompt_field,
                int64_t num_prompt_tokens, int64_t window, const ApiOptions& options);

// A random seed that survives JavaScript's numbers.
uint64_t random_seed();

}  // namespace invar::server
