#include "server/response_object.h"

#include <ctime>

#include "server/answer_parts.h"
#include "server/model_routes.h"

namespace invar::server {
namespace {

Json text_json(const ResponsesRequest& request) {
  Json format = request.text_format;
  if (format.is_null()) {
    format = Json::object();
    format.set("type", "text");
  }
  Json text = Json::object();
  text.set("format", std::move(format));
  if (!request.verbosity.is_null()) text.set("verbosity", request.verbosity);
  return text;
}

Json usage_of_response(const Totals& totals) {
  Json input = Json::object();
  input.set("cached_tokens", totals.num_cached_tokens);
  input.set("cache_write_tokens", totals.num_written_tokens);
  Json output = Json::object();
  output.set("reasoning_tokens", totals.num_reasoning_tokens);
  Json usage = Json::object();
  usage.set("input_tokens", totals.num_prompt_tokens);
  usage.set("input_tokens_details", std::move(input));
  usage.set("output_tokens", totals.num_completion_tokens);
  usage.set("output_tokens_details", std::move(output));
  usage.set("total_tokens", totals.num_prompt_tokens + totals.num_completion_tokens);
  return usage;
}

}  // namespace

Json new_response(const ResponsesRequest& request, const ChatRequest& chat, const std::string& id,
                  int64_t created) {
  const SamplingParams& sampling = chat.generation.request.sampling;
  Json reasoning = Json::object();
  reasoning.set("effort", request.effort);
  reasoning.set("summary", request.summary);
  Json json = Json::object();
  json.set("id", id);
  json.set("object", "response");
  json.set("created_at", created);
  json.set("completed_at", Json());
  json.set("status", "in_progress");
  json.set("error", Json());
  json.set("incomplete_details", Json());
  json.set("instructions", request.instructions);
  json.set("max_output_tokens", request.max_output_tokens);
  json.set("max_tool_calls", Json());
  json.set("model", chat.generation.model);
  json.set("output", Json::array());
  json.set("parallel_tool_calls", request.parallel_tool_calls);
  json.set("previous_response_id", Json());
  json.set("prompt_cache_key", request.prompt_cache_key);
  json.set("reasoning", std::move(reasoning));
  json.set("safety_identifier", request.safety_identifier);
  json.set("service_tier", "default");
  json.set("store", false);
  json.set("temperature", shown_number(sampling.temperature));
  json.set("text", text_json(request));
  json.set("tool_choice", request.tools.choice_echo);
  json.set("tools", request.tools.tools_echo);
  json.set("top_logprobs", request.top_logprobs);
  json.set("top_p", shown_number(sampling.top_p));
  json.set("truncation", "disabled");
  json.set("background", false);
  json.set("user", request.user);
  json.set("metadata", request.metadata);
  json.set("usage", Json());
  return json;
}

void end_response(Json& response, const ChatReply& reply, Json output) {
  const ChatReply::Ending ending = reply.ending(0);
  const bool is_cut = ending == ChatReply::Ending::kLimit || ending == ChatReply::Ending::kWindow;
  response.set("status", is_cut ? "incomplete" : "completed");
  response.set("completed_at", static_cast<int64_t>(std::time(nullptr)));
  if (is_cut) {
    Json details = Json::object();
    details.set("reason", "max_output_tokens");
    response.set("incomplete_details", std::move(details));
  }
  response.set("output", std::move(output));
  response.set("usage", usage_of_response(reply.totals()));
  response.set("timings", timings_json(reply.totals()));
  response.set("invar", reply.invar_facts());
}

void fail_response(Json& response, const ApiError& error, Json output) {
  // One code for our own faults, which clients know; the others have names that tell them apart.
  const bool is_fault = error.status == 500;
  Json json = Json::object();
  json.set("code", is_fault ? "server_error" : error.code);
  json.set("message", error.message);
  response.set("status", "failed");
  response.set("error", std::move(json));
  response.set("output", std::move(output));
}

}  // namespace invar::server
