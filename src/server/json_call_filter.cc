// Calls as JSON objects, between tags (Qwen, Hermes) or bare (Llama 3.x).
#include <algorithm>
#include <utility>

#include "server/tool_call_filter.h"

namespace invar::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
using Kind = ReplyPart::Kind;

std::string_view trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

class JsonCallFilter : public ToolCallFilter {
 public:
  explicit JsonCallFilter(const ToolSyntax& syntax)
      : trigger_(syntax.trigger), end_tag_(trimmed(syntax.end)) {
    if (trigger_.empty()) state_ = State::kStart;
  }

  std::vector<ReplyPart> finish() override {
    Parts parts;
    if (state_ == State::kHead) {
      add(parts, Kind::kContent, call_text_ + held_, call_begin_);
      drop(held_.size());
    } else if (state_ == State::kContent || state_ == State::kPlain || state_ == State::kStart) {
      finish_content(parts);
    }
    drop(held_.size());
    return parts;
  }

 private:
  enum class State {
    kStart,    // bare calls: nothing but white space came
    kContent,  // up to the next tag
    kPlain,    // bare calls: it is none, or it is over
    kHead,
    kArguments,
    kTail
  };

  bool step(Parts& parts) override {
    switch (state_) {
      case State::kStart: {
        const size_t begin = held_.find_first_not_of(kSpace);
        if (begin == std::string::npos) return false;
        state_ = held_[begin] == '{' ? State::kHead : State::kPlain;
        if (state_ == State::kHead) begin_head(held_.substr(0, begin));
        return true;
      }
      case State::kContent:
        if (!pass_content_up_to(trigger_, parts)) return false;
        begin_head(trigger_);
        return true;
      case State::kPlain: {
        // Behind a call white space alone counts as nothing.
        const size_t length = num_calls() > 0 ? held_.find_last_not_of(kSpace) + 1 : held_.size();
        add(parts, Kind::kContent, held_.substr(0, length), held_begin());
        drop(length);
        return false;
      }
      case State::kHead:
        return take_head(parts);
      case State::kArguments:
        return take_arguments(parts);
      case State::kTail:
        return take_tail();
    }
    return false;
  }

  void begin_head(std::string markup) {
    call_begin_ = held_begin();
    call_text_ = std::move(markup);
    drop(call_text_.size());
    state_ = State::kHead;
  }

  // { "name": "f", "arguments": up to the value. Llama writes "parameters", and finetunes mix them.
  bool take_head(Parts& parts) {
    size_t at = 0;
    const auto skip = [&] { at = std::min(held_.find_first_not_of(kSpace, at), held_.size()); };
    const auto literal = [&](std::string_view word) {  // 1: there, 0: not yet, -1: something else
      skip();
      const std::string_view rest = std::string_view(held_).substr(at, word.size());
      if (rest == word) return at += word.size(), 1;
      return word.starts_with(rest) ? 0 : -1;
    };
    std::string name;
    for (const std::string_view word : {"{", "\"name\"", ":", "\"", ",", "\"arguments\"", ":"}) {
      int found = literal(word);
      if (found < 0 && word == "\"arguments\"") found = literal("\"parameters\"");
      if (found == 0) return false;
      if (found < 0) return give_up(parts);
      if (word != "\"") continue;
      const size_t end = held_.find('"', at);
      if (end == std::string::npos) return false;
      name = held_.substr(at, end - at);
      at = end + 1;
    }
    skip();
    if (at == held_.size()) return false;
    if (held_[at] != '{') return give_up(parts);
    drop(at);
    begin_call(parts, std::move(name));
    depth_ = 0;
    in_string_ = escaped_ = false;
    state_ = State::kArguments;
    return true;
  }

  // It began like a call and is none: it is content.
  bool give_up(Parts& parts) {
    add(parts, Kind::kContent, std::exchange(call_text_, {}), call_begin_);
    state_ = trigger_.empty() ? State::kPlain : State::kContent;
    return true;
  }

  bool take_arguments(Parts& parts) {
    for (size_t i = 0; i < held_.size(); ++i) {
      const char c = held_[i];
      if (in_string_) {
        if (escaped_)
          escaped_ = false;
        else if (c == '\\')
          escaped_ = true;
        else if (c == '"')
          in_string_ = false;
        continue;
      }
      if (c == '"') in_string_ = true;
      if (c == '{' || c == '[') ++depth_;
      if ((c == '}' || c == ']') && --depth_ == 0) {
        add(parts, Kind::kArguments, held_.substr(0, i + 1));
        drop(i + 1);
        state_ = State::kTail;
        return true;
      }
    }
    add(parts, Kind::kArguments, held_);
    drop(held_.size());
    return false;
  }

  // The call's own brace and the end tag.
  bool take_tail() {
    const size_t end = trigger_.empty() ? held_.find('}') : held_.find(end_tag_);
    if (end == std::string::npos) return false;
    drop(end + (trigger_.empty() ? 1 : end_tag_.size()));
    state_ = trigger_.empty() ? State::kPlain : State::kContent;
    return true;
  }

  const std::string trigger_;  // empty: the bare object is the whole reply
  const std::string end_tag_;
  State state_ = State::kContent;
  std::string call_text_;  // markup of the call that is being read
  size_t call_begin_ = 0;
  int depth_ = 0;  // of braces and brackets in the arguments
  bool in_string_ = false, escaped_ = false;
};

}  // namespace

std::unique_ptr<ToolCallFilter> make_json_call_filter(const ToolSyntax& syntax) {
  return std::make_unique<JsonCallFilter>(syntax);
}

}  // namespace invar::server
