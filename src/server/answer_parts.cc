#include "server/answer_parts.h"

#include <algorithm>

namespace invar::server {
namespace {

double per_second(int64_t count, double ms) {
  return count > 0 && ms > 0 ? static_cast<double>(count) * 1000 / ms : 0;
}

double per_token(int64_t count, double ms) {
  return count > 0 ? ms / static_cast<double>(count) : 0;
}

}  // namespace

void Totals::add_prompt(const GenerationResult& first, bool uses_cache) {
  num_prompt_tokens += first.num_prompt_tokens;
  num_cached_tokens += first.num_cached_tokens;
  if (uses_cache) num_written_tokens += first.num_prompt_tokens - first.num_cached_tokens;
  queue_ms = std::max(queue_ms, first.queue_ms);
  prefill_ms += first.prefill_ms;
}

void Totals::add_choice(const GenerationResult& result) {
  num_completion_tokens += static_cast<int64_t>(result.token_ids.size());
  decode_ms = std::max(decode_ms, result.decode_ms);
  token_shas.push_back(result.token_sha);
}

Json usage_json(const Totals& totals) {
  Json prompt = Json::object();
  prompt.set("cached_tokens", totals.num_cached_tokens);
  prompt.set("cache_write_tokens", totals.num_written_tokens);
  Json completion = Json::object();
  completion.set("reasoning_tokens", totals.num_reasoning_tokens);
  completion.set("accepted_prediction_tokens", 0);
  completion.set("rejected_prediction_tokens", 0);
  Json usage = Json::object();
  usage.set("prompt_tokens", totals.num_prompt_tokens);
  usage.set("completion_tokens", totals.num_completion_tokens);
  usage.set("total_tokens", totals.num_prompt_tokens + totals.num_completion_tokens);
  usage.set("prompt_tokens_details", std::move(prompt));
  usage.set("completion_tokens_details", std::move(completion));
  return usage;
}

Json timings_json(const Totals& totals) {
  const int64_t prompt_n = totals.num_prompt_tokens - totals.num_cached_tokens;
  const int64_t predicted_n = totals.num_completion_tokens;
  Json timings = Json::object();
  timings.set("cache_n", totals.num_cached_tokens);
  timings.set("prompt_n", prompt_n);
  timings.set("prompt_ms", totals.prefill_ms);
  timings.set("prompt_per_token_ms", per_token(prompt_n, totals.prefill_ms));
  timings.set("prompt_per_second", per_second(prompt_n, totals.prefill_ms));
  timings.set("predicted_n", predicted_n);
  timings.set("predicted_ms", totals.decode_ms);
  timings.set("predicted_per_token_ms", per_token(predicted_n, totals.decode_ms));
  timings.set("predicted_per_second", per_second(predicted_n, totals.decode_ms));
  timings.set("draft_n", 0);
  timings.set("draft_n_accepted", 0);
  timings.set("queue_ms", totals.queue_ms);
  timings.set("ttft_ms", totals.queue_ms + totals.prefill_ms);
  return timings;
}

Json invar_json(const Totals& totals, const ModelDescription& model,
                const GenerationFields& generation, const std::string& prompt_sha) {
  Json shas = Json::array();
  for (const std::string& sha : totals.token_shas) shas.push_back(sha);
  Json speculative = Json::object();
  speculative.set("enabled", false);
  speculative.set("drafter", Json());
  speculative.set("drafted", 0);
  speculative.set("accepted", 0);
  Json json = Json::object();
  json.set("arithmetic_id", model.arithmetic_id);
  json.set("model_sha", model.model_sha);
  json.set("seed", static_cast<int64_t>(generation.request.sampling.seed));
  json.set("token_sha", std::move(shas));
  json.set("prompt_sha", prompt_sha);
  json.set("cached_tokens", totals.num_cached_tokens);
  json.set("speculative", std::move(speculative));
  json.set("warnings", warnings_json(generation.warnings));
  return json;
}

std::string system_fingerprint(const ModelDescription& model) {
  return std::string("invar-") + version() + "-" + model.arithmetic_id + "-" + model.model_sha;
}

const char* finish_reason(const GenerationResult& result) {
  return result.finish_reason == FinishReason::kLength ? "length" : "stop";
}

Json stop_reason(const GenerationResult& result) {
  if (!result.stop_text.empty()) return result.stop_text;
  return result.stop_token_id ? Json(int64_t{*result.stop_token_id}) : Json();
}

std::optional<ApiError> reply_error(const GenerationResult& result) {
  if (result.finish_reason == FinishReason::kCancelled)
    return api_error("request_cancelled", "the request was cancelled");
  if (result.finish_reason != FinishReason::kError) return std::nullopt;
  return running_error(result.error);
}

ApiError running_error(const Error& error) {
  // It fits alone, or it would not run: what is full now is so because of others.
  if (error.code == ErrorCode::kResourceExhausted) {
    ApiError full = api_error("no_memory", error.message);
    full.retry_after_ms = 1000;
    return full;
  }
  if (error.code == ErrorCode::kUnavailable) return engine_api_error(error);
  // The only thing that is found corrupt while a reply runs.
  ApiError fault = error.code == ErrorCode::kCorrupt ? api_error("nan_logits", error.message)
                                                     : engine_api_error(error);
  fault.should_retry = false;  // the same request would end the same way
  return fault;
}

std::chrono::seconds ping_interval(const GenerationFields& generation) {
  return std::chrono::seconds(std::max(0, generation.sse_ping_seconds));
}

Json ids_json(std::span<const int32_t> ids) {
  Json list = Json::array();
  for (const int32_t id : ids) list.push_back(int64_t{id});
  return list;
}

Json input_tokens_json(std::span<const int32_t> prompt_ids) {
  Json json = Json::object();
  json.set("object", "response.input_tokens");
  json.set("input_tokens", static_cast<int64_t>(prompt_ids.size()));
  return json;
}

ApiError engine_api_error(const Error& error) {
  switch (error.code) {
    case ErrorCode::kUnavailable: {
      ApiError full = api_error("queue_full", error.message);
      full.retry_after_ms = 1000;
      return full;
    }
    case ErrorCode::kCancelled:
      return api_error("request_cancelled", error.message);
    case ErrorCode::kResourceExhausted:
      return api_error("request_too_large_for_memory", error.message);
    case ErrorCode::kUnsupported:
    case ErrorCode::kInvalidArgument:
      if (error.message.starts_with("chat template"))
        return api_error("template_error", error.message, "messages");
      return error.code == ErrorCode::kUnsupported
                 ? api_error("unsupported_content", error.message, "messages")
                 : api_error("invalid_value", error.message);
    default: {
      ApiError fault = api_error("engine_error", error.message);
      fault.should_retry = false;
      return fault;
    }
  }
}

}  // namespace invar::server
