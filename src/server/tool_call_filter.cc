#include "server/tool_call_filter.h"

#include <algorithm>
#include <utility>

namespace invar::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

// How many bytes at the end of `text` may be the beginning of `marker`.
size_t possible_begin(std::string_view text, std::string_view marker) {
  for (size_t length = std::min(text.size(), marker.size() - 1); length > 0; --length)
    if (text.substr(text.size() - length) == marker.substr(0, length)) return length;
  return 0;
}

}  // namespace

using Kind = ReplyPart::Kind;

std::vector<ReplyPart> ToolCallFilter::push(std::string_view text, size_t begin) {
  if (held_.empty()) held_begin_ = begin;
  held_ += text;
  Parts parts;
  while (step(parts)) {
  }
  return parts;
}

void ToolCallFilter::add(Parts& parts, Kind kind, std::string text, size_t begin) {
  if (text.empty() && kind != Kind::kCallBegin) return;
  if (kind == Kind::kArguments && !parts.empty() && parts.back().kind == kind)
    parts.back().text += text;
  else
    parts.push_back({kind, std::move(text), begin});
}

void ToolCallFilter::begin_call(Parts& parts, std::string name) {
  ++num_calls_;
  add(parts, Kind::kCallBegin, std::move(name));
}

void ToolCallFilter::drop(size_t num_bytes) {
  held_.erase(0, num_bytes);
  held_begin_ += num_bytes;
}

bool ToolCallFilter::pass_content_up_to(std::string_view marker, Parts& parts) {
  const size_t begin = held_.find(marker);
  const bool found = begin != std::string::npos;
  const size_t end = found ? begin : held_.size() - possible_begin(held_, marker);
  const size_t length = std::string_view(held_).substr(0, end).find_last_not_of(kSpace) + 1;
  add(parts, Kind::kContent, held_.substr(0, length), held_begin_);
  drop(found ? begin : length);
  return found;
}

void ToolCallFilter::finish_content(Parts& parts) {
  const bool is_space = held_.find_first_not_of(kSpace) == std::string::npos;
  if (!(is_space && num_calls_ > 0)) add(parts, Kind::kContent, held_, held_begin_);
  drop(held_.size());
}

std::unique_ptr<ToolCallFilter> make_tool_call_filter(const ToolSyntax& syntax,
                                                      const std::vector<ToolFunction>& tools) {
  return syntax.kind == ToolSyntax::Kind::kXml ? make_xml_call_filter(tools)
                                               : make_json_call_filter(syntax);
}

}  // namespace invar::server
