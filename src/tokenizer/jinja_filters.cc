// The filters that templates use, with the behaviour of Jinja 3.1 except where it returns one-time
// iterators: ours are lists.
#include <cmath>

#include "base/result.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_parser.h"
#include "tokenizer/jinja_text.h"

namespace invar::jinja {
namespace {

using In = Interpreter;

bool flag(const Params& params, size_t i, bool missing = false) {
  return params[i] ? truthy(*params[i]) : missing;
}
bool given(const Params& params, size_t i) { return params[i] && !params[i]->is_none(); }

// ---- Text ----

Value f_string(In& in, const Value& self, const Params&, const CallArgs&) {
  return to_str(in.budget, self);
}
Value f_case(In& in, const Value& self, Case how) {
  return change_case(in.budget, to_str(in.budget, self), how);
}
Value f_upper(In& in, const Value& v, const Params&, const CallArgs&) {
  return f_case(in, v, Case::kUpper);
}
Value f_lower(In& in, const Value& v, const Params&, const CallArgs&) {
  return f_case(in, v, Case::kLower);
}
Value f_capitalize(In& in, const Value& v, const Params&, const CallArgs&) {
  return f_case(in, v, Case::kCapitalize);
}
Value f_title(In& in, const Value& v, const Params&, const CallArgs&) {
  return f_case(in, v, Case::kTitleFilter);
}

Value f_trim(In& in, const Value& self, const Params& params, const CallArgs&) {
  const Str str = to_str(in.budget, self);
  in.budget.spend_bytes(str.num_bytes());
  if (!given(params, 0)) return strip(str, nullptr, true, true);
  const Str chars = to_str(in.budget, *params[0]);
  in.budget.spend(static_cast<int64_t>(chars.num_bytes() / 16 * (str.num_bytes() / 16)));
  return in.budget.failed() ? Value() : Value(strip(str, &chars, true, true));
}

Value f_replace(In& in, const Value& self, const Params& params, const CallArgs&) {
  const bool counted = given(params, 2);
  if (counted && !params[2]->is_integral()) {
    in.budget.fail("the count of 'replace' must be an integer");
    return {};
  }
  return replace_text(in.budget, to_str(in.budget, self), to_str(in.budget, *params[0]),
                      to_str(in.budget, *params[1]), counted ? params[2]->as_int() : -1);
}

Value f_split(In& in, const Value& self, const Params& params, const CallArgs&) {
  const Str separator = given(params, 0) ? to_str(in.budget, *params[0]) : Str();
  const int64_t max = given(params, 1) && params[1]->is_integral() ? params[1]->as_int() : -1;
  return split(in.budget, to_str(in.budget, self), given(params, 0) ? &separator : nullptr, max);
}

Value f_escape(In& in, const Value& self, const Params&, const CallArgs&) {
  Str str = to_str(in.budget, self);
  static constexpr std::pair<const char*, const char*> kEscapes[] = {
      {"&", "&amp;"}, {">", "&gt;"}, {"<", "&lt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
  for (const auto& [from, to] : kEscapes)
    str = replace_text(in.budget, str, Str(from, false), Str(to, false), -1);
  return str;
}

Value f_indent(In& in, const Value& self, const Params& params, const CallArgs&) {
  const Str str = to_str(in.budget, self);
  Str indent;
  if (params[0] && params[0]->is_string()) {
    indent = params[0]->as_str();
  } else {
    const int64_t width = params[0] && params[0]->is_integral() ? params[0]->as_int() : 4;
    indent = repeat(in.budget, Str(" ", false), width);
  }
  const bool first = flag(params, 1), blank = flag(params, 2);
  StrBuilder with_newline;
  with_newline.append(str);
  with_newline.append("\n", false);
  const List lines = split_lines(in.budget, with_newline.build());
  StrBuilder out;
  for (size_t i = 0; i < lines.size() && !in.budget.failed(); ++i) {
    if (i > 0) out.append("\n", false);
    const bool indented = i == 0 ? first : blank || !lines[i].text().empty();
    if (indented) append_str(in.budget, out, indent);
    append_str(in.budget, out, lines[i]);
  }
  return out.build();
}

Value f_truncate(In& in, const Value& self, const Params& params, const CallArgs&) {
  const Str str = to_str(in.budget, self);
  if (!in.budget.spend_bytes(str.num_bytes())) return {};
  const Str end = params[2] ? to_str(in.budget, *params[2]) : Str("...", false);
  const int64_t length = params[0] && params[0]->is_integral() ? params[0]->as_int() : 255;
  const int64_t leeway = given(params, 3) && params[3]->is_integral() ? params[3]->as_int() : 5;
  if (length < end.length() || leeway < 0) {
    in.budget.fail("'truncate' needs a length of at least its end and a leeway of at least 0");
    return {};
  }
  if (str.length() - leeway <= length) return str;
  const Str cut = str.bytes(0, str.offset_of(length - end.length()));
  StrBuilder out;
  out.append(cut);
  if (!flag(params, 1))
    if (const size_t space = cut.text().rfind(' '); space != std::string::npos) out.truncate(space);
  out.append(end);
  return out.build();
}

Value f_format(In& in, const Value& self, const Params&, const CallArgs& args) {
  const Str pattern = to_str(in.budget, self);
  if (!args.named.empty()) {
    if (!args.positional.empty()) {
      in.budget.fail("'format' takes positional or named arguments, not both");
      return {};
    }
    auto dict = std::make_shared<Dict>();
    for (const auto& [name, value] : args.named)
      dict->set(in.budget, Value::string(name, true), value);
    return percent_format(in.budget, pattern, make_dict(in.budget, std::move(dict)));
  }
  return percent_format(in.budget, pattern, make_list(in.budget, args.positional, Kind::kTuple));
}

Value f_wordcount(In& in, const Value& self, const Params&, const CallArgs&) {
  const Str str = to_str(in.budget, self);
  in.budget.spend_bytes(str.num_bytes());
  int64_t count = 0;
  bool inside = false;
  for (size_t at = 0; at < str.num_bytes(); at += char_size(str.text(), at)) {
    const uint32_t c = decode_char(str.text(), at);
    const bool word = c == '_' || (c >= '0' && c <= '9') || c >= 0xAA || to_upper(c) != to_lower(c);
    count += word && !inside;
    inside = word;
  }
  return Value::integer(count);
}

Value f_tojson(In& in, const Value& self, const Params& params, const CallArgs&) {
  JsonStyle style;
  style.ensure_ascii = flag(params, 0);
  style.sort_keys = flag(params, 3);
  style.item_separator = Str(", ", false);
  style.key_separator = Str(": ", false);
  if (given(params, 1)) {
    if (params[1]->is_string()) {
      style.indent = params[1]->text();
    } else if (params[1]->is_integral() && params[1]->as_int() <= 1000) {
      style.indent =
          std::string(static_cast<size_t>(std::max<int64_t>(params[1]->as_int(), 0)), ' ');
    } else {
      in.budget.fail("the indent of 'tojson' must be a small integer or a string");
      return {};
    }
    style.item_separator = Str(",", false);
  }
  if (given(params, 2)) {
    const Value& pair = *params[2];
    if (!pair.is_sequence() || pair.items().size() != 2 || !pair.items()[0].is_string() ||
        !pair.items()[1].is_string()) {
      in.budget.fail("the separators of 'tojson' must be two strings");
      return {};
    }
    style.item_separator = pair.items()[0].as_str();
    style.key_separator = pair.items()[1].as_str();
  }
  StrBuilder out;
  append_json(in.budget, out, self, style);
  return out.build();
}

// ---- Numbers ----

Value f_int(In& in, const Value& self, const Params& params, const CallArgs&) {
  const Value fallback = params[0] ? *params[0] : Value::integer(0);
  const int64_t base = params[1] && params[1]->is_integral() ? params[1]->as_int() : 10;
  if (self.is_integral()) return Value::integer(self.as_int());
  double real = 0;
  if (self.is_string()) {
    if (!in.budget.spend_bytes(self.text().size())) return {};
    if (const auto value =
            parse_int(self.text(), static_cast<int>(std::clamp<int64_t>(base, 0, 37))))
      return Value::integer(*value);
    const auto value = parse_float(self.text());
    if (!value) return fallback;
    real = *value;
  } else if (self.is(Kind::kFloat)) {
    real = self.as_double();
  } else if (self.is_undefined()) {
    in.budget.fail(undefined_why(self));
    return {};
  } else {
    return fallback;
  }
  if (!(std::fabs(real) < 9.2e18)) return fallback;
  return Value::integer(static_cast<int64_t>(real));
}

Value f_float(In& in, const Value& self, const Params& params, const CallArgs&) {
  if (self.is_number()) return Value::real(self.as_double());
  if (self.is_string()) {
    if (!in.budget.spend_bytes(self.text().size())) return {};
    if (const auto value = parse_float(self.text())) return Value::real(*value);
  }
  if (self.is_undefined()) in.budget.fail(undefined_why(self));
  return params[0] ? *params[0] : Value::real(0);
}

Value f_abs(In& in, const Value& self, const Params&, const CallArgs&) {
  if (self.is(Kind::kFloat)) return Value::real(std::fabs(self.as_double()));
  if (self.is_integral() && self.as_int() != INT64_MIN)
    return Value::integer(std::abs(self.as_int()));
  in.budget.fail(std::string("'abs' of a ") + type_name(self));
  return {};
}

Value f_round(In& in, const Value& self, const Params& params, const CallArgs&) {
  const std::string method = params[1] && params[1]->is_string() ? params[1]->text() : "common";
  const int64_t precision = params[0] && params[0]->is_integral() ? params[0]->as_int() : 0;
  if (!self.is_number() || precision < 0 || precision > 300 ||
      (method != "common" && method != "ceil" && method != "floor")) {
    in.budget.fail("'round' needs a number, a precision of 0 or more, and common, ceil or floor");
    return {};
  }
  if (method == "common") {
    if (self.is_integral()) return Value::integer(self.as_int());
    if (!std::isfinite(self.as_double())) return self;
    if (!in.budget.spend(kDecimalSteps)) return {};
    const std::string text = format("%.*f", static_cast<int>(precision), self.as_double());
    return Value::real(std::strtod(text.c_str(), nullptr));
  }
  double power = 1;
  for (int64_t i = 0; i < precision; ++i) power *= 10;
  const double scaled = self.as_double() * power;
  return Value::real((method == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / power);
}

// ---- Sequences ----

Value f_length(In& in, const Value& self, const Params&, const CallArgs&) {
  const int64_t length = length_of(self);
  if (length < 0) in.budget.fail(std::string("a ") + type_name(self) + " has no length");
  return Value::integer(length);
}

Value f_list(In& in, const Value& self, const Params&, const CallArgs&) {
  return make_list(in.budget, iterate(in.budget, self));
}

Value f_items(In& in, const Value& self, const Params&, const CallArgs&) {
  if (self.is_undefined()) return make_list(in.budget, {});
  if (!self.is_dict()) {
    in.budget.fail(std::string("'items' needs a dict, not ") + type_name(self));
    return {};
  }
  List pairs;
  for (const auto& [key, value] : self.dict().members) {
    if (!in.budget.spend(2)) return {};
    pairs.push_back(make_list(in.budget, {key, value}, Kind::kTuple));
  }
  return make_list(in.budget, std::move(pairs));
}

Value f_first(In& in, const Value& self, const Params&, const CallArgs&) {
  const List items = iterate(in.budget, self);
  return items.empty() ? Value::undefined("no first item, the sequence is empty") : items.front();
}
Value f_last(In& in, const Value& self, const Params&, const CallArgs&) {
  const List items = iterate(in.budget, self);
  return items.empty() ? Value::undefined("no last item, the sequence is empty") : items.back();
}

Value f_default(In&, const Value& self, const Params& params, const CallArgs&) {
  if (self.is_undefined() || (flag(params, 1) && !truthy(self)))
    return params[0] ? *params[0] : Value::string("", true);
  return self;
}

Value f_safe(In& in, const Value& self, const Params&, const CallArgs&) {
  return to_str(in.budget, self);
}

// An attribute path ("a.b.0") or an index, looked up in items.
class Getter {
 public:
  Getter(In& in, const Value& path, bool ignore_case = false) : in_(in), ignore_case_(ignore_case) {
    if (path.is_string()) {
      const std::string& text = path.text();
      for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('.', begin), text.size());
        const std::string part = text.substr(begin, end - begin);
        const bool digits =
            !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
        const auto index = digits ? parse_int(part, 10) : std::nullopt;
        parts_.push_back(index ? Value::integer(*index) : Value::string(part, true));
        begin = end + 1;
      }
    } else if (!path.is_none()) {
      parts_.push_back(path);
    }
  }

  Value operator()(Value value) const {
    for (const Value& part : parts_) {
      if (!in_.budget.spend(2)) return {};
      value = in_.item(value, part);
    }
    if (ignore_case_ && value.is_string())
      return change_case(in_.budget, value.as_str(), Case::kLower);
    return value;
  }

 private:
  In& in_;
  bool ignore_case_;
  std::vector<Value> parts_;
};

Value f_join(In& in, const Value& self, const Params& params, const CallArgs&) {
  List items = iterate(in.budget, self);
  if (given(params, 1)) {
    const Getter get(in, *params[1]);
    for (Value& item : items) item = get(item);
  }
  return join(in.budget, params[0] ? to_str(in.budget, *params[0]) : Str(), items);
}

using Keyed = std::pair<Value, Value>;  // sort key, item

Value sorted(In& in, std::vector<Keyed> keyed, bool reverse) {
  merge_sort(keyed, [&](const Keyed& a, const Keyed& b) {
    if (in.budget.failed()) return false;
    return (reverse ? compare(in.budget, b.first, a.first)
                    : compare(in.budget, a.first, b.first)) == -1;
  });
  List items;
  for (Keyed& item : keyed) items.push_back(std::move(item.second));
  return make_list(in.budget, std::move(items));
}

Value f_sort(In& in, const Value& self, const Params& params, const CallArgs&) {
  const bool ignore_case = !flag(params, 1);
  std::vector<Getter> getters;
  if (given(params, 2) && params[2]->is_string()) {
    const Str comma(",", true);
    const Value names = split(in.budget, params[2]->as_str(), &comma, -1);
    if (in.budget.failed()) return {};
    for (const Value& name : names.items()) getters.emplace_back(in, name, ignore_case);
  } else {
    getters.emplace_back(in, given(params, 2) ? *params[2] : Value::none(), ignore_case);
  }
  std::vector<Keyed> keyed;
  for (const Value& item : iterate(in.budget, self)) {
    List key;
    for (const Getter& get : getters) key.push_back(get(item));
    if (in.budget.failed()) return {};
    keyed.emplace_back(make_list(in.budget, std::move(key)), item);
  }
  return sorted(in, std::move(keyed), flag(params, 0));
}

Value f_dictsort(In& in, const Value& self, const Params& params, const CallArgs&) {
  if (!self.is_dict()) {
    in.budget.fail(std::string("'dictsort' needs a dict, not ") + type_name(self));
    return {};
  }
  const bool by_value = params[1] && params[1]->is_string() && params[1]->text() == "value";
  const Getter get(in, Value::none(), !flag(params, 0));
  std::vector<Keyed> keyed;
  for (const auto& [key, value] : self.dict().members) {
    keyed.emplace_back(get(by_value ? value : key),
                       make_list(in.budget, {key, value}, Kind::kTuple));
    if (in.budget.failed()) return {};
  }
  return sorted(in, std::move(keyed), flag(params, 2));
}

Value f_unique(In& in, const Value& self, const Params& params, const CallArgs&) {
  const Getter get(in, given(params, 1) ? *params[1] : Value::none(), !flag(params, 0));
  Dict seen;
  List items;
  for (const Value& item : iterate(in.budget, self)) {
    const Value key = get(item);
    if (in.budget.failed()) return {};
    if (seen.find(in.budget, key) != nullptr) continue;
    if (!seen.set(in.budget, key, Value::none())) return {};
    items.push_back(item);
  }
  return make_list(in.budget, std::move(items));
}

Value extreme(In& in, const Value& self, const Params& params, int wanted) {
  const Getter get(in, given(params, 1) ? *params[1] : Value::none(), !flag(params, 0));
  Value best = Value::undefined("no item, the sequence is empty"), best_key;
  bool any = false;
  for (const Value& item : iterate(in.budget, self)) {
    const Value key = get(item);
    if (in.budget.failed()) return {};
    if (any && compare(in.budget, key, best_key) != wanted) continue;
    best = item;
    best_key = key;
    any = true;
  }
  return best;
}
Value f_min(In& in, const Value& self, const Params& params, const CallArgs&) {
  return extreme(in, self, params, -1);
}
Value f_max(In& in, const Value& self, const Params& params, const CallArgs&) {
  return extreme(in, self, params, 1);
}

Value f_sum(In& in, const Value& self, const Params& params, const CallArgs&) {
  const Getter get(in, given(params, 0) ? *params[0] : Value::none());
  Value total = params[1] ? *params[1] : Value::integer(0);
  for (const Value& item : iterate(in.budget, self)) {
    if (in.budget.failed()) return {};
    total = arithmetic(in, '+', total, get(item));
  }
  return total;
}

Value f_reverse(In& in, const Value& self, const Params&, const CallArgs&) {
  List items = iterate(in.budget, self);
  std::reverse(items.begin(), items.end());
  return self.is_string() ? join(in.budget, Str(), items) : make_list(in.budget, std::move(items));
}

Value f_batch(In& in, const Value& self, const Params& params, const CallArgs&) {
  const int64_t size = params[0]->is_integral() ? params[0]->as_int() : 0;
  if (size < 1) {
    in.budget.fail("'batch' needs a size of 1 or more");
    return {};
  }
  List rows, row;
  for (const Value& item : iterate(in.budget, self)) {
    if (static_cast<int64_t>(row.size()) == size)
      rows.push_back(make_list(in.budget, std::exchange(row, {})));
    row.push_back(item);
  }
  if (!row.empty()) {
    while (given(params, 1) && static_cast<int64_t>(row.size()) < size && in.budget.spend(1))
      row.push_back(*params[1]);
    rows.push_back(make_list(in.budget, std::move(row)));
  }
  return make_list(in.budget, std::move(rows));
}

CallArgs rest_of(const CallArgs& args, size_t first) {
  CallArgs rest;
  for (size_t i = first; i < args.positional.size(); ++i)
    rest.positional.push_back(args.positional[i]);
  rest.named = args.named;
  return rest;
}

// map(attribute="a", default=x) or map("filter", arguments...).
Value f_map(In& in, const Value& self, const Params&, const CallArgs& args) {
  List items = iterate(in.budget, self);
  if (args.positional.empty()) {
    std::optional<Value> path, fallback;
    for (const auto& [name, value] : args.named) {
      if (name == "attribute") path = value;
      if (name == "default") fallback = value;
    }
    if (!path || args.named.size() != size_t{1} + fallback.has_value()) {
      in.budget.fail("'map' needs the name of a filter or attribute=");
      return {};
    }
    const Getter get(in, *path);
    for (Value& item : items) {
      item = get(item);
      if (fallback && item.is_undefined()) item = *fallback;
    }
    return make_list(in.budget, std::move(items));
  }
  const Builtin* filter =
      args.positional[0].is_string() ? find_filter(args.positional[0].text()) : nullptr;
  if (filter == nullptr) {
    in.budget.fail("'map' names an unknown filter");
    return {};
  }
  const CallArgs rest = rest_of(args, 1);
  for (Value& item : items) {
    if (in.budget.failed()) return {};
    item = in.apply(*filter, item, rest, "filter");
  }
  return make_list(in.budget, std::move(items));
}

// select, reject and their ...attr forms: with_attribute looks at an attribute of each item.
Value choose(In& in, const Value& self, const CallArgs& args, bool with_attribute, bool wanted) {
  const size_t first = with_attribute ? 1 : 0;
  if (args.positional.size() < first) {
    in.budget.fail("the name of an attribute is missing");
    return {};
  }
  const Getter get(in, with_attribute ? args.positional[0] : Value::none());
  const Builtin* test = nullptr;
  if (args.positional.size() > first) {
    const Value& name = args.positional[first];
    test = name.is_string() ? find_test(name.text()) : nullptr;
    if (test == nullptr) {
      in.budget.fail("unknown test in 'select' or 'reject'");
      return {};
    }
  }
  const CallArgs rest = rest_of(args, first + 1);
  List chosen;
  for (const Value& item : iterate(in.budget, self)) {
    const Value value = get(item);
    if (in.budget.failed()) return {};
    const bool truth = truthy(test == nullptr ? value : in.apply(*test, value, rest, "test"));
    if (truth == wanted) chosen.push_back(item);
  }
  return make_list(in.budget, std::move(chosen));
}
Value f_select(In& in, const Value& self, const Params&, const CallArgs& args) {
  return choose(in, self, args, false, true);
}
Value f_reject(In& in, const Value& self, const Params&, const CallArgs& args) {
  return choose(in, self, args, false, false);
}
Value f_selectattr(In& in, const Value& self, const Params&, const CallArgs& args) {
  return choose(in, self, args, true, true);
}
Value f_rejectattr(In& in, const Value& self, const Params&, const CallArgs& args) {
  return choose(in, self, args, true, false);
}

Value f_attr(In& in, const Value& self, const Params& params, const CallArgs&) {
  return in.attribute(self, to_str(in.budget, *params[0]));
}

constexpr Builtin kFilters[] = {
    {"abs", f_abs},
    {"attr", f_attr, "name", 1},
    {"batch", f_batch, "linecount,fill_with", 1},
    {"capitalize", f_capitalize},
    {"count", f_length},
    {"d", f_default, "default_value,boolean"},
    {"default", f_default, "default_value,boolean"},
    {"dictsort", f_dictsort, "case_sensitive,by,reverse"},
    {"e", f_escape},
    {"escape", f_escape},
    {"first", f_first},
    {"float", f_float, "default"},
    {"format", f_format, "*"},
    {"indent", f_indent, "width,first,blank"},
    {"int", f_int, "default,base"},
    {"items", f_items},
    {"join", f_join, "d,attribute"},
    {"last", f_last},
    {"length", f_length},
    {"list", f_list},
    {"lower", f_lower},
    {"map", f_map, "*"},
    {"max", f_max, "case_sensitive,attribute"},
    {"min", f_min, "case_sensitive,attribute"},
    {"reject", f_reject, "*"},
    {"rejectattr", f_rejectattr, "*"},
    {"replace", f_replace, "old,new,count", 2},
    {"reverse", f_reverse},
    {"round", f_round, "precision,method"},
    {"safe", f_safe},
    {"select", f_select, "*"},
    {"selectattr", f_selectattr, "*"},
    {"sort", f_sort, "reverse,case_sensitive,attribute"},
    {"split", f_split, "sep,maxsplit"},
    {"string", f_string},
    {"sum", f_sum, "attribute,start"},
    {"title", f_title},
    {"tojson", f_tojson, "ensure_ascii,indent,separators,sort_keys"},
    {"trim", f_trim, "chars"},
    {"truncate", f_truncate, "length,killwords,end,leeway"},
    {"unique", f_unique, "case_sensitive,attribute"},
    {"upper", f_upper},
    {"wordcount", f_wordcount},
};

}  // namespace

const Builtin* find_filter(std::string_view name) {
  for (const Builtin& filter : kFilters)
    if (name == filter.name) return &filter;
  return nullptr;
}

}  // namespace invar::jinja
