// Tool calls found in a reply as it comes (specs/api.md section 6, specs/chat.md section 5). Pure
// byte machines: what comes out does not depend on how the text was cut, and markup of a call is
// never let through as content.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "invar/invar.h"

namespace invar::server {

class ToolCallFilter {
 public:
  virtual ~ToolCallFilter() = default;

  // `begin`: where `text` stands in the whole text; pieces follow each other without gaps.
  std::vector<ReplyPart> push(std::string_view text, size_t begin);
  virtual std::vector<ReplyPart> finish() = 0;  // what was held back; nothing follows
  int num_calls() const { return num_calls_; }

 protected:
  using Parts = std::vector<ReplyPart>;
  // Takes what can be decided from held_. False: more text is needed.
  virtual bool step(Parts& parts) = 0;

  static void add(Parts& parts, ReplyPart::Kind kind, std::string text, size_t begin = 0);
  void begin_call(Parts& parts, std::string name);
  void drop(size_t num_bytes);  // from the front of held_
  // Content up to where `marker` begins or may begin; white space before it waits. True: there it
  // is, and held_ begins with it.
  bool pass_content_up_to(std::string_view marker, Parts& parts);
  // The end of the text outside of a call: white space behind a call is dropped.
  void finish_content(Parts& parts);

  std::string held_;  // not yet decided

 private:
  size_t held_begin_ = 0;  // in the whole text
  int num_calls_ = 0;

 protected:
  size_t held_begin() const { return held_begin_; }
};

// `tools`: what the model may call; schemas say what the values of XML calls are.
std::unique_ptr<ToolCallFilter> make_tool_call_filter(const ToolSyntax& syntax,
                                                      const std::vector<ToolFunction>& tools);

// "<tool_call>{"name": ..., "arguments": {...}}</tool_call>", or the bare object as the whole
// reply.
std::unique_ptr<ToolCallFilter> make_json_call_filter(const ToolSyntax& syntax);
// "<tool_call><function=NAME><parameter=KEY>VALUE</parameter></function></tool_call>"
std::unique_ptr<ToolCallFilter> make_xml_call_filter(const std::vector<ToolFunction>& tools);

}  // namespace invar::server
