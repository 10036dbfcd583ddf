// The body of POST /v1/responses as a chat body (specs/api.md 9.1 to 9.3), and what its answer
// needs to know of it. Stateless: the conversation comes whole with each request.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/chat_body.h"
#include "server/generation_fields.h"
#include "server/responses_tools.h"

namespace invar::server {

struct ResponsesRequest {
  ChatBody chat;
  ResponsesTools tools;
  std::vector<Warning> warnings;
  // Repeated by the response object, as they came or null.
  Json instructions, max_output_tokens, text_format, verbosity, effort, summary, metadata, user,
      safety_identifier, prompt_cache_key;
  bool parallel_tool_calls = true;
  int top_logprobs = 0;
};

// Parameters in errors are the caller's own; so are those of `out.warnings`.
std::optional<ApiError> read_responses_body(const Json& body, const ApiOptions& options,
                                            ResponsesRequest& out);

}  // namespace invar::server
