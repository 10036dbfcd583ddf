// Tool calls: how this model's template writes them, which of them a request allows, and the
// filter that finds them in a reply (specs/api.md section 6, specs/chat.md section 5).
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "invar/invar.h"
#include "server/fields.h"

namespace invar::server {

// Found by rendering a conversation with a tool, once a model.
struct ToolSupport {
  bool renders_tools = false;        // the template shows tools to the model
  std::optional<ToolSyntax> syntax;  // nothing: one that this server cannot read
};
ToolSupport probe_tool_support(const Engine& engine);

struct ToolFields {
  std::string tools_json;  // for the template; "" renders none
  bool parse = false;      // look for calls in the reply
};

// Reads tools, tool_choice and parallel_tool_calls, and adds to `spec` what may be called.
ToolFields read_tools(Fields& fields, const ToolSupport& support, ConstraintSpec& spec,
                      std::vector<Warning>& warnings);

// Calls as "<tool_call>{"name": ..., "arguments": {...}}</tool_call>". A pure byte machine: what
// comes out does not depend on how the text was cut, and markup is never let through as content.
class ToolCallFilter {
 public:
  explicit ToolCallFilter(const ToolSyntax& syntax) : syntax_(syntax) {}
  // `begin`: where `text` stands in the whole text; pieces follow each other without gaps.
  std::vector<ReplyPart> push(std::string_view text, size_t begin);
  std::vector<ReplyPart> finish();
  int num_calls() const { return num_calls_; }

 private:
  enum class State { kContent, kHead, kArguments, kTail };
  using Parts = std::vector<ReplyPart>;
  bool step(Parts& parts);
  static void add(Parts& parts, ReplyPart::Kind kind, std::string text, size_t begin = 0);
  void give_up(Parts& parts);
  void drop(size_t num_bytes);

  const ToolSyntax syntax_;
  State state_ = State::kContent;
  std::string held_;       // not yet decided
  size_t held_begin_ = 0;  // in the whole text
  std::string call_text_;  // of the call that is being read, its markup included
  size_t call_begin_ = 0;
  int depth_ = 0;  // of braces and brackets in the arguments
  bool in_string_ = false, escaped_ = false;
  int num_calls_ = 0;
};

}  // namespace invar::server
