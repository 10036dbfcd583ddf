// ChatTemplate: a checkpoint's own Jinja template, run by our interpreter with limits
// (specs/chat.md, specs/security.md section 3). Messages in, typed segments out: only text that
// stands in the template itself (and the bos/eos strings) may become special tokens.
#pragma once

#include <cstdint>
#include <ctime>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace invar {

struct TemplateLimits {
  int64_t max_steps = 5'000'000;
  size_t max_output_bytes = 8u << 20;
  int max_recursion = 100;
  int64_t max_range = 100'000;
};

struct TemplateInput {
  Json messages = Json::array();  // [{role, content, tool_calls, reasoning_content, ...}]
  Json tools;                     // array or null
  Json kwargs = Json::object();   // chat_template_kwargs: enable_thinking, ...
  bool add_generation_prompt = true;
  std::string bos_token, eos_token, pad_token, unk_token;
  // Clock of strftime_now; tests inject one.
  std::optional<std::tm> now;
};

class ChatTemplate {
 public:
  // Syntax errors, unknown filters and unknown statements are found here, with their line.
  static Result<ChatTemplate> parse(std::string_view source, const TemplateLimits& limits = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  // kInvalidArgument: raise_exception(), a type error, a limit passed (which one, at which line).
  Result<std::vector<TextSegment>> render(const TemplateInput& input) const;

 private:
  struct Program;
  explicit ChatTemplate(std::unique_ptr<Program> program);
  std::unique_ptr<Program> program_;
};

// Applies specs/chat.md section 3 to OpenAI-style messages in place: tool-call arguments from JSON
// text to objects, content parts joined, null content to "", developer -> system, reasoning fields.
// Errors name the message index and field.
Result<void> prepare_messages(Json& messages);

}  // namespace invar
