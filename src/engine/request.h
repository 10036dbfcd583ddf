// Requests before they run: every field checked, the prompt rendered and tokenized. Runs on the
// caller's thread.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "engine/reply.h"
#include "invar/invar.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace invar {

// The templates of a checkpoint. One that does not parse makes chat requests fail with its error;
// plain prompts still work.
class ChatTemplates {
 public:
  // Sources by name ("default", "tool_use"), as in Checkpoint::chat_templates.
  explicit ChatTemplates(const std::vector<std::pair<std::string, std::string>>& sources);

  // Errors: exactly one of messages and messages_json must be set; no template; the template's own.
  Result<std::vector<TextSegment>> render(const GenerationRequest& request,
                                          const Tokenizer& tokenizer) const;

 private:
  std::vector<std::pair<std::string, Result<ChatTemplate>>> templates_;
};

struct RequestLimits {
  int64_t context = 0;
  int32_t vocab_size = 0;  // of the model
};

// The ids that `request` runs on: from messages, raw text or ids, exactly one of them.
Result<std::vector<int32_t>> make_prompt_ids(const GenerationRequest& request,
                                             const ChatTemplates& templates,
                                             const Tokenizer& tokenizer,
                                             const RequestLimits& limits);

// The same of a request with messages, with the text that the ids say.
Result<ChatPrompt> make_chat_prompt(const GenerationRequest& request,
                                    const ChatTemplates& templates, const Tokenizer& tokenizer,
                                    const RequestLimits& limits);
std::string joined(const std::vector<TextSegment>& segments);

// Everything but the prompt's content; resolves max_tokens against the context window.
Result<ReplySpec> make_reply_spec(const GenerationRequest& request, int64_t num_prompt_tokens,
                                  const RequestLimits& limits);

}  // namespace invar
