// Values as text: Python's str() and repr(), and JSON as Python's json.dumps writes it.
#include <charconv>
#include <cmath>

#include "base/result.h"
#include "tokenizer/jinja_value.h"

namespace invar::jinja {

// Shortest digits that read back the same, laid out as Python does: an exponent below 1e-4 and from
// 1e16 on, else always with a point.
std::string float_repr(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char buffer[40];
  const auto result =
      std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific);
  const std::string_view text(buffer, static_cast<size_t>(result.ptr - buffer));
  const bool negative = text[0] == '-';
  const size_t e = text.find('e');
  const int exponent = std::atoi(std::string(text.substr(e + 1)).c_str());
  std::string digits;
  for (const char c : text.substr(negative, e - negative))
    if (c != '.') digits += c;

  std::string out = negative ? "-" : "";
  if (exponent < -4 || exponent >= 16) {
    out += digits[0];
    if (digits.size() > 1) out += "." + digits.substr(1);
    out += format("e%c%02d", exponent < 0 ? '-' : '+', std::abs(exponent));
  } else if (exponent < 0) {
    out += "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
  } else {
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() < whole) digits.append(whole - digits.size(), '0');
    out += digits.substr(0, whole) + ".";
    out += digits.size() > whole ? digits.substr(whole) : "0";
  }
  return out;
}

namespace {

// The characters that repr() escapes outside ASCII, near enough: controls, invisible formatting,
// separators, surrogates and private use. Unassigned code points are printed as they are.
bool printable(uint32_t c) {
  if (c < 0x20 || (c >= 0x7F && c <= 0xA0) || c == 0xAD) return false;
  if (c == 0x1680 || c == 0x180E || c == 0x3000 || c == 0xFEFF) return false;
  if ((c >= 0x2000 && c <= 0x200F) || (c >= 0x2028 && c <= 0x202F)) return false;
  if ((c >= 0x205F && c <= 0x206F) || (c >= 0xFFF0 && c <= 0xFFFB)) return false;
  return !((c >= 0xD800 && c <= 0xF8FF) || c == 0xFFFE || c == 0xFFFF || c >= 0xE0000);
}

void repr_string(Budget& budget, StrBuilder& out, const Str& str) {
  const std::string& text = str.text();
  const bool has_single = text.find('\'') != std::string::npos;
  const char quote = has_single && text.find('"') == std::string::npos ? '"' : '\'';
  const std::string_view mark(&quote, 1);
  if (!budget.spend_bytes(text.size())) return;
  out.append(mark, str.all_trusted());
  str.for_each_run(0, text.size(), [&](std::string_view run, bool trusted) {
    std::string part;
    for (size_t at = 0; at < run.size();) {
      const size_t size = char_size(run, at);
      const uint32_t c = decode_char(run, at);
      if (c == '\\' || c == static_cast<uint32_t>(quote)) {
        part += '\\';
        part += static_cast<char>(c);
      } else if (c == '\n') {
        part += "\\n";
      } else if (c == '\r') {
        part += "\\r";
      } else if (c == '\t') {
        part += "\\t";
      } else if (printable(c)) {
        part += run.substr(at, size);
      } else if (c < 0x100) {
        part += format("\\x%02x", c);
      } else {
        part += c < 0x10000 ? format("\\u%04x", c) : format("\\U%08x", c);
      }
      at += size;
    }
    out.append(part, trusted);
  });
  out.append(mark, str.all_trusted());
}

bool fits(Budget& budget, const StrBuilder& out) {
  if (out.num_bytes() > budget.limits.max_output_bytes)
    budget.fail("the limit of " + std::to_string(budget.limits.max_output_bytes) +
                " bytes for a text was passed");
  return !budget.failed();
}

}  // namespace

void append_repr(Budget& budget, StrBuilder& out, const Value& value) {
  if (!budget.spend(1) || !fits(budget, out)) return;
  switch (value.kind()) {
    case Kind::kUndefined:
      out.append("Undefined", false);
      break;
    case Kind::kNone:
      out.append("None", false);
      break;
    case Kind::kBool:
      out.append(value.as_bool() ? "True" : "False", false);
      break;
    case Kind::kInt:
      out.append(std::to_string(value.as_int()), false);
      break;
    case Kind::kFloat:
      out.append(float_repr(value.as_double()), false);
      break;
    case Kind::kString:
      repr_string(budget, out, value.as_str());
      break;
    case Kind::kList:
    case Kind::kTuple: {
      const bool is_list = value.is(Kind::kList);
      out.append(is_list ? "[" : "(", false);
      const List& items = value.items();
      for (size_t i = 0; i < items.size() && !budget.failed(); ++i) {
        if (i > 0) out.append(", ", false);
        append_repr(budget, out, items[i]);
      }
      if (!is_list && items.size() == 1) out.append(",", false);
      out.append(is_list ? "]" : ")", false);
      break;
    }
    case Kind::kDict: {
      out.append("{", false);
      bool first = true;
      for (const auto& [key, member] : value.dict().members) {
        if (budget.failed()) return;
        if (!first) out.append(", ", false);
        first = false;
        append_repr(budget, out, key);
        out.append(": ", false);
        append_repr(budget, out, member);
      }
      out.append("}", false);
      break;
    }
    case Kind::kRange: {
      const auto& range = value.as<RangeObject>();
      out.append(format("range(%lld, %lld", static_cast<long long>(range.start),
                        static_cast<long long>(range.stop)),
                 false);
      if (range.step != 1) out.append(format(", %lld", static_cast<long long>(range.step)), false);
      out.append(")", false);
      break;
    }
    default:
      // Python prints an address or internals here, which no template can mean.
      budget.fail(std::string("a ") + type_name(value) + " cannot be printed");
  }
}

void append_str(Budget& budget, StrBuilder& out, const Value& value) {
  if (value.is_string()) {
    if (budget.spend_bytes(value.text().size())) out.append(value.as_str());
  } else if (!value.is_undefined()) {
    append_repr(budget, out, value);
  }
  fits(budget, out);
}

Str to_str(Budget& budget, const Value& value) {
  if (value.is_string()) return value.as_str();
  StrBuilder out;
  append_str(budget, out, value);
  return out.build();
}

// ---- JSON
// ----------------------------------------------------------------------------------------

namespace {

void json_string(Budget& budget, StrBuilder& out, const Str& str, bool ensure_ascii) {
  if (!budget.spend_bytes(str.num_bytes())) return;
  out.append("\"", str.all_trusted());
  str.for_each_run(0, str.num_bytes(), [&](std::string_view run, bool trusted) {
    if (!ensure_ascii) {
      const std::string quoted = json_quote(run);
      out.append(std::string_view(quoted).substr(1, quoted.size() - 2), trusted);
      return;
    }
    std::string part;
    for (size_t at = 0; at < run.size();) {
      const size_t size = char_size(run, at);
      const uint32_t c = decode_char(run, at);
      if (c < 0x7F) {
        const std::string quoted = json_quote(run.substr(at, size));
        part += std::string_view(quoted).substr(1, quoted.size() - 2);
      } else if (c == 0x7F) {
        part += '\x7F';
      } else if (c < 0x10000) {
        part += format("\\u%04x", c);
      } else {
        part += format("\\u%04x\\u%04x", 0xD800 + ((c - 0x10000) >> 10),
                       0xDC00 + ((c - 0x10000) & 0x3FF));
      }
      at += size;
    }
    out.append(part, trusted);
  });
  out.append("\"", str.all_trusted());
}

class JsonWriter {
 public:
  JsonWriter(Budget& budget, StrBuilder& out, const JsonStyle& style)
      : budget_(budget), out_(out), style_(style) {}

  void write(const Value& value, int depth) {
    if (!budget_.spend(1) || !fits(budget_, out_)) return;
    switch (value.kind()) {
      case Kind::kNone:
        out_.append("null", false);
        break;
      case Kind::kBool:
        out_.append(value.as_bool() ? "true" : "false", false);
        break;
      case Kind::kInt:
        out_.append(std::to_string(value.as_int()), false);
        break;
      case Kind::kFloat:
        out_.append(number(value.as_double()), false);
        break;
      case Kind::kString:
        json_string(budget_, out_, value.as_str(), style_.ensure_ascii);
        break;
      case Kind::kList:
      case Kind::kTuple: {
        bool first = true;
        out_.append("[", false);
        for (const Value& item : value.items()) {
          if (budget_.failed()) return;
          separate(first, depth + 1);
          write(item, depth + 1);
        }
        close(first, depth, "]");
        break;
      }
      case Kind::kDict:
        write_dict(value.dict(), depth);
        break;
      default:
        budget_.fail(value.is_undefined()
                         ? undefined_why(value) + " (in tojson)"
                         : std::string("a ") + type_name(value) + " cannot be written as JSON");
    }
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_repr(value);
  }

  void newline(int depth) {
    if (!style_.indent) return;
    budget_.spend_bytes(style_.indent->size() * static_cast<size_t>(depth));
    out_.append("\n", false);
    for (int i = 0; i < depth; ++i) out_.append(*style_.indent, false);
  }

  void separate(bool& first, int depth) {
    if (!first) out_.append(style_.item_separator);
    first = false;
    newline(depth);
  }

  void close(bool empty, int depth, const char* bracket) {
    if (!empty) newline(depth);
    out_.append(bracket, false);
  }

  void write_dict(const Dict& dict, int depth) {
    std::vector<const std::pair<Value, Value>*> members;
    for (const auto& member : dict.members) members.push_back(&member);
    if (style_.sort_keys)
      merge_sort(members, [&](const auto* a, const auto* b) {
        return compare(budget_, a->first, b->first) < 0;
      });
    bool first = true;
    out_.append("{", false);
    for (const auto* member : members) {
      if (budget_.failed()) return;
      separate(first, depth + 1);
      write_key(member->first);
      out_.append(style_.key_separator);
      write(member->second, depth + 1);
    }
    close(first, depth, "}");
  }

  void write_key(const Value& key) {
    if (key.is_string()) return json_string(budget_, out_, key.as_str(), style_.ensure_ascii);
    std::string text;
    switch (key.kind()) {
      case Kind::kNone:
        text = "null";
        break;
      case Kind::kBool:
        text = key.as_bool() ? "true" : "false";
        break;
      case Kind::kInt:
        text = std::to_string(key.as_int());
        break;
      case Kind::kFloat:
        text = number(key.as_double());
        break;
      default:
        budget_.fail(std::string("a ") + type_name(key) + " cannot be a JSON key");
    }
    out_.append("\"" + text + "\"", false);
  }

  Budget& budget_;
  StrBuilder& out_;
  const JsonStyle& style_;
};

}  // namespace

void append_json(Budget& budget, StrBuilder& out, const Value& value, const JsonStyle& style) {
  JsonWriter(budget, out, style).write(value, 0);
  fits(budget, out);
}

}  // namespace invar::jinja
