#include "server/custom_input.h"

#include <cstdlib>
#include <utility>

#include "tokenizer/unicode.h"

namespace invar::server {
namespace {

constexpr uint32_t kReplacement = 0xFFFD;
constexpr std::string_view kSpace = " \t\r\n";

}  // namespace

int CustomInput::read_head() const {
  size_t at = 0;
  for (const std::string_view word : {"{", "\"input\"", ":", "\""}) {
    at = held_.find_first_not_of(kSpace, at);
    if (at == std::string::npos) return 0;
    const std::string_view rest = std::string_view(held_).substr(at, word.size());
    if (rest != word) return word.starts_with(rest) ? 0 : -1;
    at += word.size();
  }
  return 1;  // pushed byte by byte, so that nothing of the text is in held_
}

std::string CustomInput::push(std::string_view arguments) {
  std::string out;
  for (const char c : arguments) take(c, out);
  return out;
}

void CustomInput::take(char c, std::string& out) {
  switch (state_) {
    case State::kHead: {
      held_ += c;
      const int found = read_head();
      if (found == 0) return;
      state_ = found > 0 ? State::kText : State::kRaw;
      if (found < 0) out += held_;
      held_.clear();
      return;
    }
    case State::kText:
      if (c == '\\') {
        state_ = State::kEscape;
        return;
      }
      if (std::exchange(high_surrogate_, 0) != 0) append_utf8(out, kReplacement);
      if (c == '"')
        state_ = State::kEnd;
      else
        out += c;
      return;
    case State::kEscape: {
      if (c == 'u') {
        state_ = State::kHex;
        return;
      }
      if (std::exchange(high_surrogate_, 0) != 0) append_utf8(out, kReplacement);
      constexpr std::string_view kNames = "bfnrt", kValues = "\b\f\n\r\t";
      const size_t index = kNames.find(c);
      out += index == std::string_view::npos ? c : kValues[index];
      state_ = State::kText;
      return;
    }
    case State::kHex:
      held_ += c;
      if (held_.size() == 4) take_hex(out);
      return;
    case State::kEnd:
      return;
    case State::kRaw:
      out += c;
  }
}

void CustomInput::take_hex(std::string& out) {
  const auto unit = static_cast<uint32_t>(std::strtoul(held_.c_str(), nullptr, 16));
  held_.clear();
  state_ = State::kText;
  const uint32_t high = std::exchange(high_surrogate_, 0);
  const bool is_high = unit >= 0xD800 && unit < 0xDC00, is_low = unit >= 0xDC00 && unit < 0xE000;
  if (high != 0 && is_low)
    return append_utf8(out, 0x10000 + ((high - 0xD800) << 10) + (unit - 0xDC00));
  if (high != 0) append_utf8(out, kReplacement);
  if (is_high)
    high_surrogate_ = unit;
  else
    append_utf8(out, is_low ? kReplacement : unit);
}

std::string CustomInput::finish() {
  // A head that never became one is delivered as written; half an escape is not text.
  if (state_ == State::kHead) return std::exchange(held_, "");
  std::string out;
  if (std::exchange(high_surrogate_, 0) != 0) append_utf8(out, kReplacement);
  return out;
}

}  // namespace invar::server
