// Calls as tags with parameters (Qwen3-Coder, Qwen3.5 and later, Nemotron). Their values are text;
// the tool's schema says what they are in JSON.
#include <algorithm>
#include <optional>
#include <utility>

#include "server/tool_call_filter.h"
#include "server/xml_values.h"

namespace invar::server {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kCall = "<tool_call>", kCallEnd = "</tool_call>";
constexpr std::string_view kFunction = "<function=", kFunctionEnd = "</function>";
constexpr std::string_view kParameter = "<parameter=", kParameterEnd = "</parameter>";
constexpr std::string_view kValueEnd = "\n</parameter>\n";
using Kind = ReplyPart::Kind;

class XmlCallFilter : public ToolCallFilter {
 public:
  explicit XmlCallFilter(const std::vector<ToolFunction>& tools) : schemas_(tools) {}

  std::vector<ReplyPart> finish() override {
    Parts parts;
    if (state_ == State::kValue && ends_like_a_call()) {
      is_lenient_ = true;
      while (step(parts)) {
      }
    }
    if (state_ == State::kHead)
      add(parts, Kind::kContent, std::string(kCall) + held_, call_begin_);
    else if (state_ == State::kContent)
      finish_content(parts);
    drop(held_.size());
    return parts;
  }

 private:
  enum class State { kContent, kHead, kBody, kValue, kTail };

  // 1: held_ goes on with `word` at `at`, 0: it may yet, -1: it does not.
  int goes_on_with(std::string_view word, size_t at) const {
    const std::string_view rest = std::string_view(held_).substr(at, word.size());
    return rest == word ? 1 : word.starts_with(rest) ? 0 : -1;
  }
  size_t skip_space() const { return std::min(held_.find_first_not_of(kSpace), held_.size()); }

  bool step(Parts& parts) override {
    switch (state_) {
      case State::kContent:
        if (!pass_content_up_to(kCall, parts)) return false;
        call_begin_ = held_begin();
        drop(kCall.size());
        state_ = State::kHead;
        return true;
      case State::kHead:
        return take_head(parts);
      case State::kBody:
        return take_body(parts);
      case State::kValue:
        return take_value(parts);
      case State::kTail:
        return take_tail();
    }
    return false;
  }

  bool take_head(Parts& parts) {
    const size_t at = skip_space();
    const int found = goes_on_with(kFunction, at);
    if (found == 0) return false;
    const size_t end = found < 0 ? std::string::npos : held_.find_first_of(">\n", at);
    if (found > 0 && end == std::string::npos) return false;
    if (found < 0 || held_[end] != '>') {  // it began like a call and is none
      add(parts, Kind::kContent, std::string(kCall), call_begin_);
      state_ = State::kContent;
      return true;
    }
    const size_t name = at + kFunction.size();
    function_ = held_.substr(name, end - name);
    drop(end + 1);
    begin_call(parts, function_);
    add(parts, Kind::kArguments, "{");
    num_members_ = 0;
    state_ = State::kBody;
    return true;
  }

  // Between parameters. What is neither a parameter nor the end is left out.
  bool take_body(Parts& parts) {
    drop(skip_space());
    if (held_.empty()) return false;
    const int parameter = goes_on_with(kParameter, 0), end = goes_on_with(kFunctionEnd, 0);
    const int call_end = goes_on_with(kCallEnd, 0);
    if (parameter > 0) {
      const size_t close = held_.find('>');
      if (close == std::string::npos) return false;
      key_ = held_.substr(kParameter.size(), close - kParameter.size());
      drop(close + 1);
      num_searched_ = 0;
      state_ = State::kValue;
      return true;
    }
    if (end > 0 || call_end > 0) {
      add(parts, Kind::kArguments, "}");
      drop(end > 0 ? kFunctionEnd.size() : 0);
      state_ = State::kTail;
      return true;
    }
    if (parameter == 0 || end == 0 || call_end == 0) return false;
    drop(1);
    return true;
  }

  // A value ends at its end tag on a line of its own, as the constraint has it: other tags may
  // stand in it. Its first line feed belongs to the opening tag and ends no line of the value.
  bool take_value(Parts& parts) {
    if (is_lenient_) return take_loose_value(parts);
    const size_t from = std::max<size_t>(num_searched_, held_.starts_with('\n') ? 1 : 0);
    const size_t end = held_.find(kValueEnd, from);
    if (end == std::string::npos) {
      num_searched_ = held_.size() - std::min(held_.size(), kValueEnd.size() - 1);
      return false;
    }
    end_value(parts, end + 1, end + kValueEnd.size());
    return true;
  }

  // Where that end never came: at any end tag, or at the next tag of the call.
  bool take_loose_value(Parts& parts) {
    size_t end = held_.find(kParameterEnd), skip = kParameterEnd.size();
    for (const std::string_view next : {kParameter, kFunctionEnd}) {
      const size_t found = held_.find(next);
      if (found >= end) continue;
      end = found;
      skip = 0;
    }
    if (end == std::string::npos) return false;
    end_value(parts, end, end + skip);
    return true;
  }

  void end_value(Parts& parts, size_t text_end, size_t end) {
    std::string member = num_members_++ > 0 ? "," : "";
    member +=
        Json(key_).dump() + ":" + schemas_.value_json(function_, key_, held_.substr(0, text_end));
    add(parts, Kind::kArguments, std::move(member));
    drop(end);
    state_ = State::kBody;
  }

  // Small models forget end tags of values where nothing makes them write these. A reply that ends
  // otherwise was cut inside a value.
  bool ends_like_a_call() const {
    const size_t length = held_.find_last_not_of(kSpace) + 1;
    const std::string_view text = std::string_view(held_).substr(0, length);
    return text.ends_with(kFunctionEnd) || text.ends_with(kCallEnd);
  }

  bool take_tail() {
    const size_t at = skip_space();
    const int found = goes_on_with(kCallEnd, at);
    if (found == 0) return false;
    if (found > 0) drop(at + kCallEnd.size());
    state_ = State::kContent;  // the end tag may be missing
    return true;
  }

  const XmlValues schemas_;
  State state_ = State::kContent;
  size_t call_begin_ = 0;
  std::string function_, key_;
  int num_members_ = 0;
  size_t num_searched_ = 0;  // bytes of a value in which its end does not begin
  bool is_lenient_ = false;
};

}  // namespace

std::unique_ptr<ToolCallFilter> make_xml_call_filter(const std::vector<ToolFunction>& tools) {
  return std::make_unique<XmlCallFilter>(tools);
}

}  // namespace invar::server
