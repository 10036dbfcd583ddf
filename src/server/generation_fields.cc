#include "server/generation_fields.h"

#include <algorithm>
#include <charconv>
#include <random>

namespace invar::server {
namespace {

constexpr size_t kMaxStops = 16, kMaxStopBytes = 256, kMaxStopIds = 64, kMaxMetadata = 16,
                 kMaxBiases = 1024, kMaxSaltBytes = 1024;

void read_model(Fields& fields, const ApiOptions& options, GenerationFields& out) {
  const std::optional<std::string> asked = fields.text("model");
  out.model = options.model_names.front();
  if (fields.error()) return;
  if (asked) {
    const auto& names = options.model_names;
    if (std::find(names.begin(), names.end(), *asked) != names.end()) {
      out.model = *asked;
      return;
    }
  }
  if (options.any_model_name) {
    if (asked)
      warn(out.warnings,
           {"model_substituted", "model",
            quote_value(*asked) + " is not served here; " + quote_value(out.model) + " answered"});
    return;
  }
  std::string served;
  for (const std::string& name : options.model_names)
    served += (served.empty() ? "" : ", ") + quote_value(name);
  if (!asked)
    fields.fail("missing_field", "model", "field required; served: " + served);
  else
    fields.fail(api_error("model_not_found",
                          "model " + quote_value(*asked) + " is not served here; served: " + served,
                          "model"));
}

void read_stop(Fields& fields, std::vector<std::string>& stops) {
  const Json* value = fields.find("stop");
  if (value == nullptr) return;
  if (value->is_string()) {
    stops = {value->as_string()};
  } else if (value->is_array()) {
    for (const Json& entry : value->items()) {
      if (!entry.is_string()) return fields.fail("invalid_type", "stop", "must hold strings only");
      stops.push_back(entry.as_string());
    }
  } else {
    return fields.fail(
        "invalid_type", "stop",
        "must be a string or an array of strings, got " + std::string(value->kind_name()));
  }
  if (stops.size() > kMaxStops)
    return fields.fail("out_of_range", "stop",
                       format("may hold at most %zu strings, got %zu", kMaxStops, stops.size()));
  for (const std::string& stop : stops)
    if (stop.empty() || stop.size() > kMaxStopBytes)
      return fields.fail(
          "invalid_value", "stop",
          format("strings must have 1 to %zu bytes, got %zu", kMaxStopBytes, stop.size()));
}

void read_stop_ids(Fields& fields, int32_t vocab_size, std::vector<int32_t>& ids) {
  constexpr const char* kName = "stop_token_ids";
  const Json* value = fields.array(kName);
  if (value == nullptr) return;
  if (value->items().size() > kMaxStopIds)
    return fields.fail(
        "out_of_range", kName,
        format("may hold at most %zu ids, got %zu", kMaxStopIds, value->items().size()));
  for (const Json& entry : value->items()) {
    if (!entry.is_int())
      return fields.fail("invalid_type", kName,
                         "must hold token ids, got " + std::string(entry.kind_name()));
    if (entry.as_int() < 0 || entry.as_int() >= vocab_size)
      return fields.fail("out_of_range", kName,
                         format("names token %lld; the vocabulary has ids 0 to %d",
                                static_cast<long long>(entry.as_int()), vocab_size - 1));
    ids.push_back(static_cast<int32_t>(entry.as_int()));
  }
}

void read_metadata(Fields& fields, Json& out) {
  const Json* value = fields.object("metadata");
  if (value == nullptr) return;
  if (value->members().size() > kMaxMetadata)
    return fields.fail("out_of_range", "metadata",
                       format("may have at most %zu members", kMaxMetadata));
  for (const auto& [name, entry] : value->members())
    if (!entry.is_string())
      return fields.fail("invalid_type", "metadata", "values must be strings");
  out = *value;
}

bool parse_id(std::string_view text, int64_t& id) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  return error == std::errc() && end == text.data() + text.size();
}

// {"50256": -100} or [[50256, -100], [50257, false]].
void read_logit_bias(Fields& fields, int32_t vocab_size,
                     std::vector<std::pair<int32_t, float>>& biases) {
  constexpr const char* kName = "logit_bias";
  const Json* value = fields.find(kName);
  if (value == nullptr) return;
  const auto add = [&](int64_t id, const Json& bias) {
    const bool is_ban = bias.is_bool() && !bias.as_bool();
    if (id < 0 || id >= vocab_size)
      return fields.fail("out_of_range", kName,
                         format("names token %lld; the vocabulary has ids 0 to %d",
                                static_cast<long long>(id), vocab_size - 1));
    if (!is_ban && !bias.is_number())
      return fields.fail("invalid_type", kName, "values must be numbers from -100 to 100");
    const double number = is_ban ? -100 : bias.as_double();
    if (number < -100 || number > 100)
      return fields.fail("out_of_range", kName,
                         format("values must be between -100 and 100, got %g", number));
    biases.emplace_back(static_cast<int32_t>(id), static_cast<float>(number));
  };
  if (value->is_object()) {
    for (const auto& [key, bias] : value->members()) {
      int64_t id = 0;
      if (!parse_id(key, id))
        return fields.fail("invalid_value", kName,
                           "keys must be token ids, got " + quote_value(key));
      add(id, bias);
    }
  } else if (value->is_array()) {
    for (const Json& pair : value->items()) {
      if (!pair.is_array() || pair.items().size() != 2 || !pair.items()[0].is_int())
        return fields.fail("invalid_type", kName, "entries must be [token id, number or false]");
      add(pair.items()[0].as_int(), pair.items()[1]);
    }
  } else {
    return fields.fail("invalid_type", kName, "must be an object or an array of pairs");
  }
  if (biases.size() > kMaxBiases)
    fields.fail("out_of_range", kName,
                format("may have at most %zu entries, got %zu", kMaxBiases, biases.size()));
}

void read_sampling(Fields& fields, const ModelDescription& model, const RequestDefaults& defaults,
                   GenerationFields& out) {
  SamplingParams& s = out.request.sampling;
  s = default_params(model, defaults);
  const auto number = [&](std::initializer_list<std::string_view> names, double low, double high,
                          float& value) {
    const std::string_view name = fields.first_of(names);
    if (!name.empty()) value = static_cast<float>(fields.number(name, low, high, value));
  };
  number({"temperature", "temp"}, 0, 5, s.temperature);
  number({"top_p"}, 1e-9, 1, s.top_p);
  number({"min_p"}, 0, 1, s.min_p);
  number({"presence_penalty"}, -2, 2, s.presence_penalty);
  number({"frequency_penalty"}, -2, 2, s.frequency_penalty);
  number({"repetition_penalty", "repeat_penalty"}, 0.01, 10, s.repetition_penalty);
  // Each name keeps its home's window: vLLM's looks at all tokens, llama.cpp's at the last 64.
  const bool is_alias =
      fields.find("repetition_penalty") == nullptr && fields.find("repeat_penalty") != nullptr;
  const bool is_llama =
      is_alias || (fields.find("repetition_penalty") == nullptr && defaults.repetition_penalty);
  s.repeat_last_n =
      fields.integer("repeat_last_n", -1, model.context,
                     std::min(defaults.repeat_last_n.value_or(is_llama ? 64 : -1), model.context));
  const int64_t top_k = fields.integer("top_k", -1, int64_t{1} << 31, s.top_k);
  s.top_k = top_k <= 0 || top_k >= model.vocab_size ? 0 : static_cast<int>(top_k);
  read_logit_bias(fields, model.vocab_size, s.logit_bias);
  const int64_t seed = fields.integer("seed", INT64_MIN, INT64_MAX, defaults.seed);
  s.seed = seed == -1 ? random_seed() : static_cast<uint64_t>(seed);
}

// Known names of features that this server lacks, and values that ask for nothing.
void refuse_what_is_not_built(Fields& fields) {
  for (const char* name : {"functions",
                           "function_call",
                           "audio",
                           "web_search_options",
                           "documents",
                           "use_beam_search",
                           "truncate_prompt_tokens",
                           "prompt_logprobs",
                           "grammar",
                           "guided_json",
                           "guided_regex",
                           "guided_grammar",
                           "dry_multiplier",
                           "xtc_probability",
                           "mirostat",
                           "dynatemp_range",
                           "lora",
                           "kv_transfer_params",
                           "priority",
                           "allowed_token_ids",
                           "bad_words",
                           "watermarking",
                           "structural_tag"})
    fields.not_built(name);
  fields.not_built("typical_p", 1);
  fields.not_built("top_n_sigma", -1);
  if (!fields.boolean("skip_special_tokens", true))
    fields.fail("unsupported_parameter", "skip_special_tokens",
                "must be true: replies have no special tokens in their text");
  if (fields.find("chat_template") != nullptr)
    fields.fail(api_error("template_not_allowed",
                          "chat_template cannot be sent; the operator chooses the template",
                          "chat_template"));
  fields.ignore({"user",
                 "store",
                 "service_tier",
                 "safety_identifier",
                 "prompt_cache_key",
                 "prompt_cache_options",
                 "prompt_cache_retention",
                 "client_metadata",
                 "id_slot",
                 "prediction",
                 "verbosity",
                 "request_id",
                 "session_id",
                 "spaces_between_special_tokens",
                 "dry_base",
                 "dry_allowed_length",
                 "dry_penalty_last_n",
                 "dry_sequence_breakers",
                 "xtc_threshold",
                 "mirostat_tau",
                 "mirostat_eta",
                 "dynatemp_exponent"});
}

}  // namespace

SamplingParams default_params(const ModelDescription& model, const RequestDefaults& defaults) {
  SamplingParams s = model.default_sampling;
  if (!model.has_default_temperature) s.temperature = 1;
  const auto over = [](float& target, const std::optional<double>& value) {
    if (value) target = static_cast<float>(*value);
  };
  over(s.temperature, defaults.temperature);
  over(s.top_p, defaults.top_p);
  over(s.min_p, defaults.min_p);
  over(s.repetition_penalty, defaults.repetition_penalty);
  over(s.presence_penalty, defaults.presence_penalty);
  over(s.frequency_penalty, defaults.frequency_penalty);
  if (defaults.top_k) s.top_k = static_cast<int>(*defaults.top_k);
  return s;
}

uint64_t random_seed() {
  std::random_device device;
  const uint64_t bits = (uint64_t{device()} << 32) | device();
  return bits & ((uint64_t{1} << 53) - 1);
}

GenerationFields read_generation_fields(Fields& fields, const ModelDescription& model,
                                        const ApiOptions& options, bool allow_no_output,
                                        const std::string& key_digest) {
  GenerationFields out;
  read_model(fields, options, out);
  out.stream = fields.boolean("stream", false);
  if (const Json* object = fields.object("stream_options")) {
    if (!out.stream) fields.fail("invalid_value", "stream_options", "is allowed only with stream");
    Fields inner(*object, "stream_options.");
    out.include_usage = inner.boolean("include_usage", false);
    out.continuous_usage = inner.boolean("continuous_usage_stats", false);
    inner.ignore({"include_obfuscation"});
    inner.finish(options.strict_fields, out.warnings);
    if (inner.error()) fields.fail(*inner.error());
  }
  const std::string_view limit =
      fields.first_of({"max_completion_tokens", "max_tokens", "n_predict"});
  out.max_tokens = options.defaults.max_tokens;
  out.max_tokens_is_default = limit.empty();
  if (!limit.empty()) {
    out.max_tokens = fields.integer(limit, -1, int64_t{1} << 40, -1);
    if (out.max_tokens == 0 && !allow_no_output)
      fields.fail("out_of_range", limit, "must be at least 1, got 0");
  }
  const std::string_view n = fields.first_of({"n", "n_cmpl"});
  if (!n.empty()) out.num_choices = static_cast<int>(fields.integer(n, 1, 16, 1));
  if (const Json* best = fields.find("best_of");
      best != nullptr &&
      !(best->is_number() && (best->as_double() == 1 || best->as_double() == out.num_choices)))
    fields.fail("unsupported_parameter", "best_of", "is supported only when it is 1 or n");
  read_sampling(fields, model, options.defaults, out);
  read_stop(fields, out.request.stop);
  out.request.include_stop = fields.boolean("include_stop_str_in_output", false);
  out.request.stop_in_reasoning = fields.boolean("include_reasoning_stop", false);
  read_stop_ids(fields, model.vocab_size, out.request.stop_token_ids);
  out.request.min_tokens = fields.integer("min_tokens", 0, int64_t{1} << 40, 0);
  if (out.max_tokens >= 0 && out.request.min_tokens > out.max_tokens)
    fields.fail(
        "out_of_range", "min_tokens",
        format("must be at most max_tokens %lld, got %lld", static_cast<long long>(out.max_tokens),
               static_cast<long long>(out.request.min_tokens)));
  out.request.ignore_end = fields.boolean("ignore_eos", options.defaults.ignore_end);

  out.request.use_prefix_cache = fields.boolean("cache_prompt", true);
  if (const auto salt = fields.text("cache_salt")) {
    if (salt->empty() || salt->size() > kMaxSaltBytes)
      fields.fail("out_of_range", "cache_salt", format("must have 1 to %zu bytes", kMaxSaltBytes));
    out.request.cache_salt = *salt;
  }
  if (options.salt_per_key) out.request.cache_salt = key_digest + out.request.cache_salt;
  const std::string_view speculative = fields.first_of({"speculative", "draft"});
  if (!speculative.empty() && fields.boolean(speculative, false))
    warn(out.warnings, {"no_drafter", std::string(speculative), "this server has no drafter"});

  out.timings_per_token = fields.boolean("timings_per_token", false);
  out.return_progress = fields.boolean("return_progress", false);
  if (out.return_progress && !out.stream)
    fields.fail("invalid_value", "return_progress", "needs stream to be true");
  out.request.report_progress = out.timings_per_token || out.return_progress;
  out.return_token_ids = fields.boolean("return_token_ids", false);
  out.sse_ping_seconds = options.sse_ping_seconds;
  if (fields.find("sse_ping_interval") != nullptr)
    out.sse_ping_seconds = static_cast<int>(fields.integer("sse_ping_interval", -1, 600, 10));
  if (fields.find("sse_ping_interval") != nullptr && out.sse_ping_seconds == 0)
    fields.fail("out_of_range", "sse_ping_interval", "must be 1 to 600, or -1 for none, got 0");
  read_metadata(fields, out.metadata);
  refuse_what_is_not_built(fields);
  return out;
}

void fit_window(Fields& fields, GenerationFields& generation, const char* prompt_field,
                int64_t num_prompt_tokens, int64_t window, const ApiOptions& options) {
  const int64_t left = window - num_prompt_tokens;
  int64_t& asked = generation.max_tokens;
  if (generation.max_tokens_is_default && asked > left) asked = -1;  // a default never refuses
  if (asked > left && left >= 1 && options.clamp_max_tokens) {
    warn(generation.warnings,
         {"clamped_max_tokens", "max_tokens",
          format("lowered from %lld to %lld, the rest of the window", static_cast<long long>(asked),
                 static_cast<long long>(left))});
    asked = left;
    generation.ends_at_window = true;
  }
  generation.request.max_tokens = asked;
  if (asked < 0) generation.ends_at_window = true;
  const bool fits = asked < 0 ? left >= 1 : asked <= left;
  if (fits && generation.request.min_tokens > left)
    return fields.fail("out_of_range", "min_tokens",
                       format("asks for %lld tokens, and the window has room for %lld",
                              static_cast<long long>(generation.request.min_tokens),
                              static_cast<long long>(left)));
  if (fits) return;
  const auto number = [](int64_t value) { return std::to_string(value); };
  std::string message = "This model's maximum context length is " + number(window) + " tokens. ";
  if (left < 1) {
    message += "The prompt has " + number(num_prompt_tokens) + " tokens" +
               (asked > 0 ? ", max_tokens asks for " + number(asked) + " more," : "") +
               " and leaves no room for a reply; shorten it.";
  } else {
    message += "The prompt has " + number(num_prompt_tokens) + " tokens and max_tokens asks for " +
               number(asked) + ", " + number(num_prompt_tokens + asked) +
               " in total; send at most " + number(left) + ".";
  }
  ApiError error = api_error("context_length_exceeded", std::move(message),
                             left < 1 ? prompt_field : "max_tokens");
  error.num_prompt_tokens = num_prompt_tokens;
  error.context = window;
  fields.fail(std::move(error));
}

}  // namespace invar::server
