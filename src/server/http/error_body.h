// ApiError: why a request was refused or ended, and the bodies that say so in the two shapes that
// clients parse (OpenAI's, and Anthropic's under /v1/messages). Knows no socket and no engine.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace invar::server {

// Which vendor's shapes a path speaks.
enum class ApiStyle { kOpenAi, kMessages };
ApiStyle api_style(std::string_view path);

struct ApiError {
  int status = 500;
  std::string type, messages_type, code;
  std::string message;
  std::string param = {};  // "messages[2].content"; empty: null
  // With context_length_exceeded.
  std::optional<int64_t> num_prompt_tokens = {}, context = {};
  int64_t retry_after_ms = 0;  // Retry-After and retry-after-ms; 0: a second for 429 and 503
  bool should_retry = true;    // false: the same request would fail again (x-should-retry)
};

// `code` is one of the table in error_body.cc, which gives status and types.
ApiError api_error(std::string_view code, std::string message, std::string param = {});

// The body of an error answer. Messages are cut to 500 characters.
std::string error_json(ApiStyle style, const ApiError& error, std::string_view request_id);

// 'text' for a message: at most 80 characters of it, control characters escaped.
std::string quote_value(std::string_view text);

}  // namespace invar::server
