// String formatting: printf style ("%s" % x and the format filter) and "{}".format(x). The common
// part of both; what is not here is an error, never wrong text.
#include <cmath>

#include "base/result.h"
#include "tokenizer/jinja_text.h"

namespace invar::jinja {
namespace {

constexpr int64_t kMaxWidth = 10'000;

struct Spec {
  bool left = false, plus = false, space = false, zero = false, alternate = false;
  int64_t width = 0, precision = -1;
};

void pad(StrBuilder& out, const Str& text, const Spec& spec) {
  const int64_t missing = spec.width - text.length();
  const std::string blanks(static_cast<size_t>(std::max<int64_t>(missing, 0)), ' ');
  if (!spec.left) out.append(blanks, false);
  out.append(text);
  if (spec.left) out.append(blanks, false);
}

std::string number_text(const Spec& spec, char type, const Value& value) {
  std::string flags = "%";
  if (spec.left) flags += '-';
  if (spec.plus) flags += '+';
  if (spec.space) flags += ' ';
  if (spec.zero) flags += '0';
  if (spec.alternate && type != 'd') flags += '#';
  flags += std::to_string(spec.width);
  if (spec.precision >= 0) flags += "." + std::to_string(spec.precision);
  char buffer[512];
  const bool integral = type == 'd' || type == 'x' || type == 'X' || type == 'o';
  // Python prints negative hexadecimal numbers with a sign.
  const long long integer = integral ? value.as_int() : 0;
  const bool negative = integral && type != 'd' && integer < 0;
  flags += integral ? std::string("ll") + type : std::string(1, type);
  const long long shown = negative ? -integer : integer;
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
  const int length = integral
                         ? std::snprintf(buffer, sizeof buffer, flags.c_str(), shown)
                         : std::snprintf(buffer, sizeof buffer, flags.c_str(), value.as_double());
  std::string text(static_cast<size_t>(std::max(length, 0)), '\0');
  if (integral) {
    std::snprintf(text.data(), text.size() + 1, flags.c_str(), shown);
  } else {
    std::snprintf(text.data(), text.size() + 1, flags.c_str(), value.as_double());
  }
#pragma GCC diagnostic pop
  return negative ? "-" + text : text;
}

class PercentFormatter {
 public:
  PercentFormatter(Budget& budget, const Str& pattern, const Value& args)
      : budget_(budget), pattern_(pattern), text_(pattern.text()), args_(args) {}

  Value run() {
    while (at_ < text_.size() && !budget_.failed()) {
      const size_t percent = text_.find('%', at_);
      const size_t end = percent == std::string::npos ? text_.size() : percent;
      out_.append(pattern_, at_, end);
      at_ = end;
      if (at_ < text_.size()) directive();
      if (!budget_.spend_bytes(out_.num_bytes() > budget_.limits.max_output_bytes ? out_.num_bytes()
                                                                                  : 16))
        break;
    }
    const bool unused = args_.is(Kind::kTuple)
                            ? next_ < args_.items().size()
                            : next_ == 0 && !args_.is_dict() && !args_.is(Kind::kList);
    if (unused && !used_name_) budget_.fail("not all arguments of '%' were used");
    return out_.build();
  }

 private:
  Value take() {
    if (args_.is(Kind::kTuple)) {
      if (next_ < args_.items().size()) return args_.items()[next_++];
    } else if (next_ == 0) {
      ++next_;
      return args_;
    }
    budget_.fail("too few arguments for '%'");
    return {};
  }

  int64_t number(bool& ok) {
    int64_t value = 0;
    ok = true;
    if (at_ < text_.size() && text_[at_] == '*') {
      ++at_;
      const Value given = take();
      ok = given.is_integral() && given.as_int() >= 0 && given.as_int() <= kMaxWidth;
      return ok ? given.as_int() : 0;
    }
    while (at_ < text_.size() && text_[at_] >= '0' && text_[at_] <= '9' && value <= kMaxWidth)
      value = value * 10 + (text_[at_++] - '0');
    ok = value <= kMaxWidth;
    return value;
  }

  void directive() {
    ++at_;
    Spec spec;
    std::optional<Value> named;
    if (at_ < text_.size() && text_[at_] == '(') {
      const size_t close = text_.find(')', at_);
      if (close == std::string::npos || !args_.is_dict())
        return budget_.fail("'%(name)s' needs a dict");
      const std::string key = text_.substr(at_ + 1, close - at_ - 1);
      const Value* member = args_.dict().find(key);
      if (member == nullptr) return budget_.fail("no value for '%(" + key + ")'");
      named = *member;
      used_name_ = true;
      at_ = close + 1;
    }
    for (; at_ < text_.size(); ++at_) {
      const char c = text_[at_];
      if (c == '-')
        spec.left = true;
      else if (c == '+')
        spec.plus = true;
      else if (c == ' ')
        spec.space = true;
      else if (c == '0')
        spec.zero = true;
      else if (c == '#')
        spec.alternate = true;
      else
        break;
    }
    bool ok = true;
    spec.width = number(ok);
    if (ok && at_ < text_.size() && text_[at_] == '.') {
      ++at_;
      spec.precision = number(ok);
    }
    if (!ok) return budget_.fail("a width or precision in a format is too large");
    if (at_ >= text_.size()) return budget_.fail("incomplete format");
    const char type = text_[at_++];
    if (type == '%') return out_.append("%", pattern_.all_trusted());
    const Value value = named ? *named : take();
    if (budget_.failed()) return;
    convert(type, spec, value);
  }

  void convert(char type, Spec spec, const Value& value) {
    // Padding and digits are text that is in neither the pattern nor the value.
    const int64_t extra = spec.width + std::max<int64_t>(spec.precision, 0);
    if (!budget_.spend(extra)) return;
    switch (type) {
      case 's':
      case 'r': {
        StrBuilder part;
        type == 's' ? append_str(budget_, part, value) : append_repr(budget_, part, value);
        Str text = part.build();
        if (spec.precision >= 0) text = text.bytes(0, text.offset_of(spec.precision));
        return pad(out_, text, spec);
      }
      case 'd':
      case 'i':
      case 'u':
      case 'x':
      case 'X':
      case 'o': {
        Value integer = value;
        if (value.is(Kind::kFloat) && std::fabs(value.as_double()) < 9e18 && type != 'x' &&
            type != 'X' && type != 'o')
          integer = Value::integer(static_cast<int64_t>(value.as_double()));
        if (!integer.is_integral() || integer.as_int() == INT64_MIN)
          return budget_.fail(std::string("'%") + type + "' needs an integer, not " +
                              type_name(value));
        return out_.append(number_text(spec, type == 'i' || type == 'u' ? 'd' : type, integer),
                           false);
      }
      case 'e':
      case 'E':
      case 'f':
      case 'F':
      case 'g':
      case 'G':
        if (!value.is_number())
          return budget_.fail(std::string("'%") + type + "' needs a number, not " +
                              type_name(value));
        if (!budget_.spend(kDecimalSteps)) return;
        return out_.append(number_text(spec, type, value), false);
      default:
        budget_.fail(std::string("format '%") + type + "' is not supported");
    }
  }

  Budget& budget_;
  const Str& pattern_;
  const std::string& text_;
  const Value& args_;
  StrBuilder out_;
  size_t at_ = 0, next_ = 0;
  bool used_name_ = false;
};

}  // namespace

Value percent_format(Budget& budget, const Str& pattern, const Value& args) {
  if (!budget.spend_bytes(pattern.num_bytes())) return {};
  return PercentFormatter(budget, pattern, args).run();
}

Value brace_format(Budget& budget, const Str& pattern, const List& positional,
                   const std::vector<std::pair<std::string, Value>>& named) {
  const std::string& text = pattern.text();
  if (!budget.spend_bytes(text.size())) return {};
  StrBuilder out;
  size_t next = 0;
  for (size_t at = 0; at < text.size() && !budget.failed();) {
    const size_t brace = std::min(text.find_first_of("{}", at), text.size());
    out.append(pattern, at, brace);
    at = brace;
    if (at >= text.size()) break;
    if (at + 1 < text.size() && text[at + 1] == text[at]) {
      out.append(pattern, at, at + 1);
      at += 2;
      continue;
    }
    const size_t close = text.find('}', at);
    if (text[at] == '}' || close == std::string::npos) {
      budget.fail("a single '{' or '}' in a format");
      break;
    }
    const std::string field = text.substr(at + 1, close - at - 1);
    at = close + 1;
    if (field.find_first_of(".[:!{") != std::string::npos) {
      budget.fail("format field '{" + field.substr(0, 40) + "}' is not supported");
      break;
    }
    const Value* value = nullptr;
    if (field.empty() || field.find_first_not_of("0123456789") == std::string::npos) {
      const size_t index = field.empty() ? next++ : parse_int(field, 10).value_or(-1);
      if (index < positional.size()) value = &positional[index];
    } else {
      for (const auto& [name, given] : named)
        if (name == field) value = &given;
    }
    if (value == nullptr) {
      budget.fail("no value for format field '{" + field.substr(0, 40) + "}'");
      break;
    }
    append_str(budget, out, *value);
  }
  return out.build();
}

}  // namespace invar::jinja
