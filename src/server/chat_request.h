// The body of POST /v1/chat/completions as a checked request (specs/api.md sections 4 and 5.1).
#pragma once

#include <optional>
#include <string>

#include "invar/invar.h"
#include "server/chat_model.h"
#include "server/generation_fields.h"
#include "server/reply_splitter.h"

namespace invar::server {

struct ChatRequest {
  GenerationFields generation;
  std::vector<int32_t> prompt_ids;
  bool logprobs = false;
  bool include_reasoning = true;  // false: it is generated and counted, not delivered
  SplitRules split;
};

// `for_generation` false: only the prompt is wanted (apply-template, input_tokens), which may fill
// the window.
std::optional<ApiError> read_chat_request(const Json& body, const Engine& engine,
                                          const ChatModel& model, const ApiOptions& options,
                                          const std::string& key_digest, bool for_generation,
                                          ChatRequest& out, std::string* rendered = nullptr);

}  // namespace invar::server
