// ReplySplitter: a chat reply's text as reasoning, content and tool calls, in that order of filters
// (specs/api.md 4.6): what each takes for its own the next one never sees.
#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "invar/invar.h"
#include "server/reasoning_filter.h"
#include "server/tool_call_filter.h"

namespace invar::server {

struct SplitRules {
  enum class Reasoning {
    kStays,   // tags and all are content
    kApart,   // reasoning and content are told apart
    kInline,  // tags and all are content, and reasoning is given apart as well
  };
  Reasoning reasoning = Reasoning::kApart;
  bool starts_in_reasoning = false;       // the prompt ends in an open <think>
  std::optional<ToolSyntax> syntax = {};  // nothing: calls are not looked for
  std::vector<ToolFunction> tools = {};
};

class ReplySplitter : public ReplyParser {
 public:
  explicit ReplySplitter(const SplitRules& rules);

  std::vector<ReplyPart> push(std::string_view text) override;
  std::vector<ReplyPart> finish() override;
  bool in_reasoning() const override { return reasoning_filter_.inside(); }

 private:
  void add_content(std::string_view text, size_t begin, std::vector<ReplyPart>& parts);

  const SplitRules::Reasoning reasoning_;
  ReasoningFilter reasoning_filter_;
  std::unique_ptr<ToolCallFilter> tool_filter_;  // null: none
  size_t num_bytes_ = 0;                         // of the whole text so far
};

}  // namespace invar::server
