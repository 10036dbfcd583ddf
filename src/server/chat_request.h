// The body of POST /v1/chat/completions as a checked request (specs/api.md sections 4 and 5.1).
#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "invar/invar.h"
#include "server/generation_fields.h"
#include "server/tool_calls.h"

namespace invar::server {

// What the model's template and vocabulary can do, found once.
struct ChatModel {
  ToolSupport tools;
  bool has_reasoning = false;  // <think> is a token

  class Once;
};

class ChatModel::Once {
 public:
  const ChatModel& of(const Engine& engine);

 private:
  std::once_flag once_;
  ChatModel model_;
};

struct ChatRequest {
  GenerationFields generation;
  std::vector<int32_t> prompt_ids;
  bool logprobs = false;
  bool split_reasoning = true;  // <think> ... </think> is delivered apart
  bool include_reasoning = true;
  bool starts_in_reasoning = false;
  std::optional<ToolSyntax> tool_syntax;  // calls in the reply are delivered as such
};

// `for_generation` false: only the prompt is wanted (apply-template, input_tokens), which may fill
// the window.
std::optional<ApiError> read_chat_request(const Json& body, const Engine& engine,
                                          const ChatModel& model, const ApiOptions& options,
                                          const std::string& key_digest, bool for_generation,
                                          ChatRequest& out, std::string* rendered = nullptr);

}  // namespace invar::server
