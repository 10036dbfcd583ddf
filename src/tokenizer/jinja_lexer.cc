// Tags are found by hand, not by regular expressions: the rules are few, and linear time matters.
#include "tokenizer/jinja_lexer.h"

#include <charconv>
#include <cstdlib>

#include "tokenizer/jinja_string.h"

namespace invar::jinja {
namespace {

constexpr size_t kMaxSourceBytes = 4u << 20;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_name_start(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_name_char(char c) { return is_name_start(c) || is_digit(c); }

// CRLF and CR become LF, and one newline at the end goes.
std::string normalize_newlines(std::string_view source) {
  std::string out;
  out.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      out += source[i];
    } else {
      out += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    }
  }
  if (!out.empty() && out.back() == '\n') out.pop_back();
  return out;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  Result<std::vector<Token>> run() {
    while (at_ < source_.size()) {
      if (!next_piece()) return invalid_argument("line %d: %s", line_, error_.c_str());
    }
    push(TokenType::kEnd, "");
    return std::move(tokens_);
  }

 private:
  std::string_view rest() const { return std::string_view(source_).substr(at_); }
  bool starts(std::string_view text) const { return rest().starts_with(text); }

  bool fail(std::string why) {
    error_ = std::move(why);
    return false;
  }

  void push(TokenType type, std::string text) {
    Token token;
    token.type = type;
    token.line = line_;
    token.text = std::move(text);
    tokens_.push_back(std::move(token));
  }

  void advance(size_t count) {
    for (size_t i = 0; i < count; ++i) line_ += source_[at_ + i] == '\n';
    at_ += count;
    if (count > 0) line_starting_ = source_[at_ - 1] == '\n';
  }

  void skip_spaces() { advance(skip_space(source_, at_) - at_); }

  // The text before a tag, whose sign decides what is left of it. `lstrip`: not for {{ }}.
  std::string strip_before(std::string_view data, char sign, bool lstrip) const {
    if (sign == '-') return std::string(data.substr(0, rskip_space(data, data.size())));
    if (sign == '+' || !lstrip) return std::string(data);
    const size_t newline = data.rfind('\n');
    const size_t begin = newline == std::string_view::npos ? 0 : newline + 1;
    if (begin == 0 && !line_starting_) return std::string(data);
    if (skip_space(data, begin) < data.size()) return std::string(data);
    return std::string(data.substr(0, begin));
  }

  void push_data(std::string text) {
    if (!text.empty()) push(TokenType::kData, std::move(text));
  }

  // Data up to the next tag, and that tag with all that stands in it.
  bool next_piece() {
    size_t tag = at_;
    for (;; ++tag) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 >= source_.size()) {
        push_data(std::string(rest()));
        advance(source_.size() - at_);
        return true;
      }
      const char kind = source_[tag + 1];
      if (kind == '{' || kind == '%' || kind == '#') break;
    }
    const char kind = source_[tag + 1];
    char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    push_data(strip_before(rest().substr(0, tag - at_), sign, kind != '{'));
    advance(tag - at_ + 2 + (sign != '\0'));
    if (kind == '#') return comment();
    if (kind == '{') {
      push(TokenType::kVarBegin, "{{");
      return code("}}", TokenType::kVarEnd);
    }
    if (const size_t end = raw_begin(); end != 0) {
      advance(end - at_);
      return raw();
    }
    push(TokenType::kBlockBegin, "{%");
    return code("%}", TokenType::kBlockEnd);
  }

  // At the end mark of a block or a comment: what belongs to it. 0: no end mark here.
  size_t block_end(size_t at, std::string_view mark, bool trims = true) const {
    const std::string_view text = std::string_view(source_).substr(at);
    if (text.size() > 2 && text[0] == '-' && text.substr(1).starts_with(mark))
      return skip_space(source_, at + 3);
    if (trims && text.size() > 2 && text[0] == '+' && text.substr(1).starts_with(mark))
      return at + 3;
    if (!text.starts_with(mark)) return 0;
    const bool newline = trims && text.size() > 2 && text[2] == '\n';
    return at + 2 + newline;
  }

  bool comment() {
    for (size_t at = at_; at < source_.size(); ++at) {
      const size_t end = block_end(at, "#}");
      if (end == 0) continue;
      advance(end - at_);
      return true;
    }
    return fail("a comment has no end '#}'");
  }

  // After "{%": the end of "raw %}" when that stands here, else 0.
  size_t raw_begin() const {
    const size_t name = skip_space(source_, at_);
    if (source_.compare(name, 3, "raw") != 0) return 0;
    return block_end(skip_space(source_, name + 3), "%}", /*trims=*/false);
  }

  bool raw() {
    for (size_t tag = source_.find("{%", at_); tag != std::string::npos;
         tag = source_.find("{%", tag + 1)) {
      char sign = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
      if (sign != '-' && sign != '+') sign = '\0';
      const size_t name = skip_space(source_, tag + 2 + (sign != '\0'));
      if (source_.compare(name, 6, "endraw") != 0) continue;
      const size_t end = block_end(skip_space(source_, name + 6), "%}");
      if (end == 0) continue;
      push_data(strip_before(rest().substr(0, tag - at_), sign, true));
      advance(end - at_);
      return true;
    }
    return fail("a raw block has no '{% endraw %}'");
  }

  // Tokens up to the end mark. Inside brackets the mark is no mark: {{ {'a': {}} }}.
  bool code(std::string_view mark, TokenType end_type) {
    std::string open;
    while (at_ < source_.size()) {
      if (open.empty()) {
        const size_t end = block_end(at_, mark, end_type == TokenType::kBlockEnd);
        if (end != 0) {
          push(end_type, std::string(mark));
          advance(end - at_);
          return true;
        }
      }
      const size_t after_space = skip_space(source_, at_);
      if (after_space != at_) {
        advance(after_space - at_);
        continue;
      }
      const char c = source_[at_];
      bool ok = false;
      if (is_digit(c)) {
        ok = number();
      } else if (is_name_start(c)) {
        size_t end = at_;
        while (end < source_.size() && is_name_char(source_[end])) ++end;
        push(TokenType::kName, source_.substr(at_, end - at_));
        advance(end - at_);
        ok = true;
      } else if (c == '\'' || c == '"') {
        ok = string(c);
      } else {
        ok = symbol(open);
      }
      if (!ok) return false;
    }
    return fail("a tag has no end '" + std::string(mark) + "'");
  }

  bool symbol(std::string& open) {
    static constexpr std::string_view kSymbols[] = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view text : kSymbols) {
      if (!starts(text)) continue;
      const char c = text[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) return fail(std::string("unexpected '") + c + "'");
        open.pop_back();
      }
      push(TokenType::kOperator, std::string(text));
      advance(text.size());
      return true;
    }
    const uint32_t c = decode_char(source_, at_);
    if (c > 0x20 && c < 0x7F)
      return fail(std::string("unexpected character '") + source_[at_] + "'");
    return fail(format("unexpected character U+%04X", c));
  }

  // Digits of `base` with single underscores between them, from `at` on; `digits` gets them alone.
  size_t scan_digits(size_t at, int base, std::string& digits) const {
    const auto is_one = [&](size_t i) {
      if (i >= source_.size()) return false;
      const char c = static_cast<char>(source_[i] | 0x20);
      if (base == 16 && c >= 'a' && c <= 'f') return true;
      return source_[i] >= '0' && source_[i] < '0' + std::min(base, 10);
    };
    while (is_one(at) || (at < source_.size() && source_[at] == '_' && is_one(at + 1))) {
      if (source_[at] != '_') digits += source_[at];
      ++at;
    }
    return at;
  }

  bool number() {
    std::string digits;
    int base = 10;
    size_t end = at_;
    const char second =
        at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : '\0';
    if (source_[at_] == '0' && (second == 'x' || second == 'o' || second == 'b')) {
      base = second == 'x' ? 16 : second == 'o' ? 8 : 2;
      end = scan_digits(at_ + 2, base, digits);
      if (digits.empty()) return fail("a number has no digits");
      return integer(digits, base, end);
    }
    end = scan_digits(at_, 10, digits);
    const size_t int_end = end;
    const size_t num_int_digits = digits.size();
    std::string text = digits;
    // "1.items" is no float: the point needs a digit; and "a.1.2" are two subscripts.
    const bool after_point = !tokens_.empty() && tokens_.back().is_op(".");
    bool is_float = false;
    if (!after_point) {
      if (end + 1 < source_.size() && source_[end] == '.' && is_digit(source_[end + 1])) {
        std::string fraction;
        end = scan_digits(end + 1, 10, fraction);
        text += "." + fraction;
        is_float = true;
      }
      if (end < source_.size() && (source_[end] | 0x20) == 'e') {
        size_t at = end + 1;
        std::string exponent;
        if (at < source_.size() && (source_[at] == '+' || source_[at] == '-'))
          exponent += source_[at++];
        if (at < source_.size() && is_digit(source_[at])) {
          end = scan_digits(at, 10, exponent);
          text += "e" + exponent;
          is_float = true;
        }
      }
    }
    if (is_float) {
      double value = 0;
      const auto result = std::from_chars(text.data(), text.data() + text.size(), value);
      if (result.ec != std::errc())
        return fail("number " + text.substr(0, 40) + " is out of range");
      push(TokenType::kFloat, text);
      tokens_.back().real = value;
      advance(end - at_);
      return true;
    }
    if (num_int_digits > 1 && digits[0] == '0' &&
        digits.find_first_not_of('0') != std::string::npos)
      return fail("number " + digits.substr(0, 40) + " begins with 0");
    return integer(digits, 10, int_end);
  }

  bool integer(const std::string& digits, int base, size_t end) {
    int64_t value = 0;
    const auto result = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (result.ec != std::errc())
      return fail("number " + digits.substr(0, 40) + " is out of range");
    if (end < source_.size() && is_name_char(source_[end]))
      return fail("a number is followed by a letter");
    push(TokenType::kInteger, digits);
    tokens_.back().integer = value;
    advance(end - at_);
    return true;
  }

  bool string(char quote) {
    std::string out;
    size_t at = at_ + 1;
    while (true) {
      if (at >= source_.size()) return fail("a string has no end");
      const char c = source_[at];
      if (c == quote) break;
      if (c != '\\') {
        out += c;
        ++at;
      } else if (!escape(at, out)) {
        return false;
      }
    }
    push(TokenType::kString, std::move(out));
    advance(at + 1 - at_);
    return true;
  }

  // Python's escapes; a backslash before anything else stays.
  bool escape(size_t& at, std::string& out) {
    if (at + 1 >= source_.size()) return fail("a string has no end");
    const char c = source_[at + 1];
    static constexpr std::string_view kFrom = "ntr\\'\"abfv", kTo = "\n\t\r\\'\"\a\b\f\v";
    if (const size_t i = kFrom.find(c); i != std::string_view::npos) {
      out += kTo[i];
      at += 2;
      return true;
    }
    if (c == '\n') {  // a line continued
      at += 2;
      return true;
    }
    if (c >= '0' && c <= '7') {
      uint32_t value = 0;
      size_t end = at + 1;
      while (end < std::min(at + 4, source_.size()) && source_[end] >= '0' && source_[end] <= '7')
        value = value * 8 + static_cast<uint32_t>(source_[end++] - '0');
      append_utf8(out, value);
      at = end;
      return true;
    }
    if (c == 'x' || c == 'u' || c == 'U') {
      uint32_t value = 0;
      if (!hex(at + 2, c == 'x' ? 2 : c == 'u' ? 4 : 8, value)) return false;
      at += c == 'x' ? 4 : c == 'u' ? 6 : 10;
      // A surrogate pair is one character; Python would fail later, when it encodes the text.
      uint32_t low = 0;
      if (value >= 0xD800 && value < 0xDC00 && source_.compare(at, 2, "\\u") == 0 &&
          hex(at + 2, 4, low) && low >= 0xDC00 && low < 0xE000) {
        value = 0x10000 + ((value - 0xD800) << 10) + (low - 0xDC00);
        at += 6;
      }
      if (value > 0x10FFFF || (value >= 0xD800 && value < 0xE000))
        return fail(format("a string holds the escape of U+%04X, which is no character", value));
      append_utf8(out, value);
      return true;
    }
    if (c == 'N') return fail("\\N{...} in a string is not supported");
    out += '\\';
    ++at;
    return true;
  }

  bool hex(size_t at, size_t count, uint32_t& value) {
    if (at + count > source_.size()) return fail("a string has a cut escape");
    const auto result =
        std::from_chars(source_.data() + at, source_.data() + at + count, value, 16);
    if (result.ec != std::errc() || result.ptr != source_.data() + at + count)
      return fail("a string has a bad escape");
    return true;
  }

  std::string source_;
  size_t at_ = 0;
  int line_ = 1;
  bool line_starting_ = true;
  std::vector<Token> tokens_;
  std::string error_;
};

}  // namespace

Result<std::vector<Token>> tokenize(std::string_view source) {
  if (source.size() > kMaxSourceBytes)
    return invalid_argument("the template has %zu bytes, more than %zu", source.size(),
                            kMaxSourceBytes);
  if (const size_t bad = find_invalid_utf8(source); bad != std::string_view::npos) {
    int line = 1;
    for (const char c : source.substr(0, bad)) line += c == '\n';
    return invalid_argument("line %d: the template is not valid UTF-8", line);
  }
  return Lexer(normalize_newlines(source)).run();
}

}  // namespace invar::jinja
