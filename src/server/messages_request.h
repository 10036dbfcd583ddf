// The body of POST /v1/messages and /v1/messages/count_tokens as a chat body (specs/api.md 10.1 to
// 10.3), and what its answer needs to know of it.
#pragma once

#include <optional>
#include <vector>

#include "server/chat_body.h"
#include "server/generation_fields.h"

namespace invar::server {

struct MessagesRequest {
  ChatBody chat;
  std::vector<Warning> warnings;
  bool hides_thinking = false;  // thinking blocks have empty text
  bool only_prompt = false;     // max_tokens 0
};

// Parameters in errors are the caller's own; so are those of `out.warnings`. `for_generation`
// false (count_tokens): limits and sampling fields are not looked at.
std::optional<ApiError> read_messages_body(const Json& body, const ApiOptions& options,
                                           bool for_generation, MessagesRequest& out);

// "max_tokens: field required", as clients of this API expect errors to begin; and agents look for
// "prompt is too long".
ApiError in_messages_words(ApiError error);

}  // namespace invar::server
