// Methods of strings, dicts and lists, and the global functions.
#include "base/result.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_text.h"

namespace invar::jinja {
namespace {

using In = Interpreter;

Value wrong_type(In& in, const char* what, const Value& found) {
  in.budget.fail(std::string(what) + ", not " + type_name(found));
  return {};
}
bool given(const Params& params, size_t i) { return params[i] && !params[i]->is_none(); }

// ---- Strings ----

template <Case how>
Value s_case(In& in, const Value& self, const Params&, const CallArgs&) {
  return change_case(in.budget, self.as_str(), how);
}

template <bool left, bool right>
Value s_strip(In& in, const Value& self, const Params& params, const CallArgs&) {
  const Str str = self.as_str();
  in.budget.spend_bytes(str.num_bytes());
  if (!given(params, 0)) return strip(str, nullptr, left, right);
  if (!params[0]->is_string()) return wrong_type(in, "strip needs a string", *params[0]);
  const Str chars = params[0]->as_str();
  in.budget.spend(static_cast<int64_t>(chars.num_bytes() / 16 * (str.num_bytes() / 16)));
  return in.budget.failed() ? Value() : Value(strip(str, &chars, left, right));
}

template <bool from_right>
Value s_split(In& in, const Value& self, const Params& params, const CallArgs&) {
  int64_t max = -1;
  if (params[1]) {
    if (!params[1]->is_integral()) return wrong_type(in, "maxsplit must be an integer", *params[1]);
    max = params[1]->as_int();
  }
  if (given(params, 0) && !params[0]->is_string())
    return wrong_type(in, "split needs a string", *params[0]);
  const Str separator = given(params, 0) ? params[0]->as_str() : Str();
  const Str* used = given(params, 0) ? &separator : nullptr;
  return from_right ? rsplit(in.budget, self.as_str(), used, max)
                    : split(in.budget, self.as_str(), used, max);
}

Value s_splitlines(In& in, const Value& self, const Params& params, const CallArgs&) {
  const bool keep = params[0] && truthy(*params[0]);
  return make_list(in.budget, split_lines(in.budget, self.as_str(), keep));
}

Value s_replace(In& in, const Value& self, const Params& params, const CallArgs&) {
  if (!params[0]->is_string() || !params[1]->is_string())
    return wrong_type(in, "replace needs two strings",
                      params[0]->is_string() ? *params[1] : *params[0]);
  if (params[2] && !params[2]->is_integral())
    return wrong_type(in, "the count of replace must be an integer", *params[2]);
  return replace_text(in.budget, self.as_str(), params[0]->as_str(), params[1]->as_str(),
                      params[2] ? params[2]->as_int() : -1);
}

// The part of `self` between the optional parameters `first` and first + 1 (in code points).
bool range_of(const Value& self, const Params& params, size_t first, size_t& begin, size_t& end) {
  const Str str = self.as_str();
  const auto place = [&](size_t i, int64_t missing) {
    if (!given(params, i) || !params[i]->is_integral()) return missing;
    const int64_t at = params[i]->as_int();
    return std::clamp(at < -str.length() ? 0
                      : at < 0           ? at + str.length()
                                         : at,
                      int64_t{0}, str.length() + 1);
  };
  const int64_t from = place(first, 0), to = std::min(place(first + 1, str.length()), str.length());
  if (from > to) return false;
  begin = str.offset_of(from);
  end = str.offset_of(to);
  return true;
}

template <bool at_end>
Value s_affix(In& in, const Value& self, const Params& params, const CallArgs&) {
  size_t begin = 0, end = 0;
  in.budget.spend_bytes(self.text().size());
  const bool in_range = range_of(self, params, 1, begin, end);
  const auto matches = [&](const Value& part) {
    if (!part.is_string()) {
      wrong_type(in, "startswith and endswith need a string or a tuple of strings", part);
      return false;
    }
    const auto text = std::string_view(self.text()).substr(begin, end - begin);
    return in_range && (at_end ? text.ends_with(part.text()) : text.starts_with(part.text()));
  };
  if (!params[0]->is(Kind::kTuple)) return Value::boolean(matches(*params[0]));
  for (const Value& part : params[0]->items())
    if (in.budget.spend(1) && matches(part)) return Value::boolean(true);
  return Value::boolean(false);
}

enum class Search { kFind, kRfind, kIndex, kCount };
template <Search how>
Value s_search(In& in, const Value& self, const Params& params, const CallArgs&) {
  if (!params[0]->is_string()) return wrong_type(in, "a string is needed", *params[0]);
  if (!in.budget.spend_bytes(2 * self.text().size())) return {};
  size_t begin = 0, end = 0;
  const bool in_range = range_of(self, params, 1, begin, end);
  const std::string_view text = std::string_view(self.text()).substr(0, end);
  const std::string& part = params[0]->text();
  if constexpr (how == Search::kCount) {
    if (!in_range) return Value::integer(0);
    if (part.empty()) return Value::integer(count_code_points(text.substr(begin)) + 1);
    int64_t count = 0;
    for (size_t at = begin; (at = find_text(text, part, at)) != kNotFound; at += part.size())
      ++count;
    return Value::integer(count);
  }
  size_t found = kNotFound;
  if (in_range) {
    if constexpr (how == Search::kRfind) {
      found = rfind_text(in.budget, text.substr(begin), part);
      if (found != kNotFound) found += begin;
    } else {
      found = find_text(text, part, begin);
    }
  }
  if (found != kNotFound)
    return Value::integer(found == 0 ? 0 : count_code_points(text.substr(0, found)));
  if constexpr (how == Search::kIndex) in.budget.fail("substring not found");
  return Value::integer(-1);
}

Value s_join(In& in, const Value& self, const Params& params, const CallArgs&) {
  const List items = iterate(in.budget, *params[0]);
  for (const Value& item : items)
    if (!item.is_string()) return wrong_type(in, "join needs strings", item);
  return join(in.budget, self.as_str(), items);
}

Value s_format(In& in, const Value& self, const Params&, const CallArgs& args) {
  return brace_format(in.budget, self.as_str(), args.positional, args.named);
}

template <bool at_end>
Value s_remove(In& in, const Value& self, const Params& params, const CallArgs&) {
  if (!params[0]->is_string()) return wrong_type(in, "a string is needed", *params[0]);
  const Str str = self.as_str();
  const std::string& part = params[0]->text();
  in.budget.spend_bytes(str.num_bytes());
  if (at_end && str.text().ends_with(part)) return str.bytes(0, str.num_bytes() - part.size());
  if (!at_end && str.text().starts_with(part)) return str.bytes(part.size(), str.num_bytes());
  return self;
}

template <bool from_right>
Value s_partition(In& in, const Value& self, const Params& params, const CallArgs&) {
  if (!params[0]->is_string() || params[0]->text().empty())
    return wrong_type(in, "a separator is needed", *params[0]);
  const Str str = self.as_str();
  const std::string& part = params[0]->text();
  in.budget.spend_bytes(str.num_bytes());
  const size_t at =
      from_right ? rfind_text(in.budget, str.text(), part) : find_text(str.text(), part);
  List parts;
  if (at == kNotFound) {
    parts = from_right ? List{Str(), Str(), str} : List{str, Str(), Str()};
  } else {
    const size_t end = at + part.size();
    parts = {str.bytes(0, at), str.bytes(at, end), str.bytes(end, str.num_bytes())};
  }
  return make_list(in.budget, std::move(parts), Kind::kTuple);
}

// Calls f for each character until it says no. False for the empty string, as in Python.
template <typename F>
Value every_char(In& in, const Value& self, F f) {
  const std::string& text = self.text();
  in.budget.spend_bytes(4 * text.size());
  for (size_t at = 0; at < text.size(); at += char_size(text, at))
    if (!f(decode_char(text, at))) return Value::boolean(false);
  return Value::boolean(!text.empty());
}
bool is_digit(uint32_t c) { return c >= '0' && c <= '9'; }
bool is_letter(uint32_t c) { return to_upper(c) != to_lower(c) || (c >= 0x2E80 && c < 0xD7FF); }
Value s_isdigit(In& in, const Value& self, const Params&, const CallArgs&) {
  return every_char(in, self, is_digit);
}
Value s_isspace(In& in, const Value& self, const Params&, const CallArgs&) {
  return every_char(in, self, is_space);
}
Value s_isalpha(In& in, const Value& self, const Params&, const CallArgs&) {
  return every_char(in, self, is_letter);
}
Value s_isalnum(In& in, const Value& self, const Params&, const CallArgs&) {
  return every_char(in, self, [](uint32_t c) { return is_digit(c) || is_letter(c); });
}
template <bool upper>
Value s_iscase(In& in, const Value& self, const Params&, const CallArgs&) {
  bool any = false, other = false;
  every_char(in, self, [&](uint32_t c) {
    if (to_upper(c) != to_lower(c)) (c == (upper ? to_upper(c) : to_lower(c)) ? any : other) = true;
    return !other;
  });
  return Value::boolean(any && !other);
}

constexpr Builtin kStringMethods[] = {
    {"capitalize", s_case<Case::kCapitalize>},
    {"casefold", s_case<Case::kLower>},
    {"count", s_search<Search::kCount>, "sub,start,end", 1},
    {"endswith", s_affix<true>, "suffix,start,end", 1},
    {"find", s_search<Search::kFind>, "sub,start,end", 1},
    {"format", s_format, "*"},
    {"index", s_search<Search::kIndex>, "sub,start,end", 1},
    {"isalnum", s_isalnum},
    {"isalpha", s_isalpha},
    {"isdecimal", s_isdigit},
    {"isdigit", s_isdigit},
    {"islower", s_iscase<false>},
    {"isnumeric", s_isdigit},
    {"isspace", s_isspace},
    {"isupper", s_iscase<true>},
    {"join", s_join, "iterable", 1},
    {"lower", s_case<Case::kLower>},
    {"lstrip", s_strip<true, false>, "chars"},
    {"partition", s_partition<false>, "sep", 1},
    {"removeprefix", s_remove<false>, "prefix", 1},
    {"removesuffix", s_remove<true>, "suffix", 1},
    {"replace", s_replace, "old,new,count", 2},
    {"rfind", s_search<Search::kRfind>, "sub,start,end", 1},
    {"rpartition", s_partition<true>, "sep", 1},
    {"rsplit", s_split<true>, "sep,maxsplit"},
    {"rstrip", s_strip<false, true>, "chars"},
    {"split", s_split<false>, "sep,maxsplit"},
    {"splitlines", s_splitlines, "keepends"},
    {"startswith", s_affix<false>, "prefix,start,end", 1},
    {"strip", s_strip<true, true>, "chars"},
    {"swapcase", s_case<Case::kSwap>},
    {"title", s_case<Case::kTitle>},
    {"upper", s_case<Case::kUpper>},
};

// ---- Dicts and lists ----

// As in Jinja's immutable sandbox.
Value forbidden(In& in, const Value& self, const Params&, const CallArgs&) {
  in.budget.fail(std::string("a template may not change a ") + type_name(self));
  return {};
}

Value d_items(In& in, const Value& self, const Params&, const CallArgs&) {
  List pairs;
  for (const auto& [key, value] : self.dict().members) {
    if (!in.budget.spend(2)) return {};
    pairs.push_back(make_list(in.budget, {key, value}, Kind::kTuple));
  }
  return make_list(in.budget, std::move(pairs));
}
Value d_keys(In& in, const Value& self, const Params&, const CallArgs&) {
  return make_list(in.budget, iterate(in.budget, self));
}
Value d_values(In& in, const Value& self, const Params&, const CallArgs&) {
  List values;
  for (const auto& member : self.dict().members) values.push_back(member.second);
  return make_list(in.budget, std::move(values));
}
Value d_get(In& in, const Value& self, const Params& params, const CallArgs&) {
  if (const Value* found = self.dict().find(in.budget, *params[0])) return *found;
  return params[1] ? *params[1] : Value::none();
}
Value same(In&, const Value& self, const Params&, const CallArgs&) { return self; }

constexpr Builtin kDictMethods[] = {
    {"clear", forbidden, "*"},
    {"copy", same},
    {"get", d_get, "key,default", 1},
    {"items", d_items},
    {"keys", d_keys},
    {"pop", forbidden, "*"},
    {"popitem", forbidden, "*"},
    {"setdefault", forbidden, "*"},
    {"update", forbidden, "*"},
    {"values", d_values},
};

Value l_index(In& in, const Value& self, const Params& params, const CallArgs&) {
  const List& items = self.items();
  for (size_t i = 0; i < items.size(); ++i)
    if (equal(in.budget, items[i], *params[0])) return Value::integer(static_cast<int64_t>(i));
  in.budget.fail("the value is not in the list");
  return {};
}
Value l_count(In& in, const Value& self, const Params& params, const CallArgs&) {
  int64_t count = 0;
  for (const Value& item : self.items()) count += equal(in.budget, item, *params[0]);
  return Value::integer(count);
}

constexpr Builtin kListMethods[] = {
    {"append", forbidden, "*"},     {"clear", forbidden, "*"},  {"copy", same},
    {"count", l_count, "value", 1}, {"extend", forbidden, "*"}, {"index", l_index, "value", 1},
    {"insert", forbidden, "*"},     {"pop", forbidden, "*"},    {"remove", forbidden, "*"},
    {"reverse", forbidden, "*"},    {"sort", forbidden, "*"},
};

Value loop_cycle(In& in, const Value& self, const Params&, const CallArgs& args) {
  if (args.positional.empty()) {
    in.budget.fail("loop.cycle needs values");
    return {};
  }
  const auto index = static_cast<size_t>(self.as<LoopObject>().index0);
  return args.positional[index % args.positional.size()];
}
constexpr Builtin kLoopMethods[] = {{"cycle", loop_cycle, "*"}};

template <size_t N>
const Builtin* find(const Builtin (&table)[N], std::string_view name) {
  for (const Builtin& builtin : table)
    if (name == builtin.name) return &builtin;
  return nullptr;
}

// ---- Globals ----

Value g_range(In& in, const Value&, const Params&, const CallArgs& args) {
  constexpr int64_t kMaxBound = 1'000'000'000'000'000;  // so that nothing overflows
  const auto& given_args = args.positional;
  if (given_args.empty() || given_args.size() > 3 || !args.named.empty()) {
    in.budget.fail("range needs one to three integers");
    return {};
  }
  int64_t bounds[3] = {0, 0, 1};
  for (size_t i = 0; i < given_args.size(); ++i) {
    if (!given_args[i].is_integral()) return wrong_type(in, "range needs integers", given_args[i]);
    bounds[i] = given_args[i].as_int();
    if (bounds[i] > kMaxBound || bounds[i] < -kMaxBound) {
      in.budget.fail("a bound of range is too large");
      return {};
    }
  }
  if (given_args.size() == 1) std::swap(bounds[0], bounds[1]);
  if (bounds[2] == 0) {
    in.budget.fail("the step of range must not be 0");
    return {};
  }
  auto range = std::make_shared<RangeObject>();
  range->start = bounds[0];
  range->stop = bounds[1];
  range->step = bounds[2];
  const int64_t distance = bounds[2] > 0 ? bounds[1] - bounds[0] : bounds[0] - bounds[1];
  const int64_t stride = bounds[2] > 0 ? bounds[2] : -bounds[2];
  range->count = distance > 0 ? (distance - 1) / stride + 1 : 0;
  if (range->count > in.budget.limits.max_range) {
    in.budget.fail(format("the limit of %lld numbers in a range was passed",
                          static_cast<long long>(in.budget.limits.max_range)));
    return {};
  }
  return Value(Kind::kRange, std::move(range));
}

// namespace(a=1), dict(a=1): the arguments as members; a dict or pairs may come first.
void take_members(In& in, const CallArgs& args, Dict& members) {
  if (args.positional.size() > 1) in.budget.fail("no more than one positional argument is allowed");
  if (!args.positional.empty()) {
    const Value& first = args.positional[0];
    if (first.is_dict()) {
      for (const auto& [key, value] : first.dict().members) members.set(in.budget, key, value);
    } else {
      for (const Value& pair : iterate(in.budget, first)) {
        const List both = iterate(in.budget, pair);
        if (both.size() != 2) in.budget.fail("a dict is made of pairs");
        if (in.budget.failed()) return;
        members.set(in.budget, both[0], both[1]);
      }
    }
  }
  for (const auto& [name, value] : args.named)
    members.set(in.budget, Value::string(name, /*trusted=*/true), value);
}

Value g_dict(In& in, const Value&, const Params&, const CallArgs& args) {
  auto dict = std::make_shared<Dict>();
  take_members(in, args, *dict);
  return in.budget.failed() ? Value() : make_dict(in.budget, std::move(dict));
}

Value g_namespace(In& in, const Value&, const Params&, const CallArgs& args) {
  Dict members;
  take_members(in, args, members);
  if (!in.budget.spend(8 + static_cast<int64_t>(members.members.size()))) return {};
  Value result = in.make_namespace();
  for (const auto& [key, value] : members.members) {
    if (!key.is_string()) return wrong_type(in, "a namespace needs names", key);
    result.as<NamespaceObject>().members.emplace_back(key.text(), value);
  }
  return result;
}

Value g_raise(In& in, const Value&, const Params& params, const CallArgs&) {
  in.budget.fail(to_str(in.budget, *params[0]).text());
  return {};
}

// The directives of C's strftime in the C locale, and glibc's '-' (no padding).
Value g_strftime(In& in, const Value&, const Params& params, const CallArgs&) {
  if (!params[0]->is_string()) return wrong_type(in, "strftime_now needs a string", *params[0]);
  static constexpr const char* kDays[] = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                          "Thursday", "Friday", "Saturday"};
  static constexpr const char* kMonths[] = {"January",   "February", "March",    "April",
                                            "May",       "June",     "July",     "August",
                                            "September", "October",  "November", "December"};
  const std::tm& now = in.now;
  const std::string day = kDays[((now.tm_wday % 7) + 7) % 7];
  const std::string month = kMonths[((now.tm_mon % 12) + 12) % 12];
  const int year = now.tm_year + 1900;
  const int hour12 = (now.tm_hour + 11) % 12 + 1;
  const Str pattern = params[0]->as_str();
  StrBuilder out;
  if (!in.budget.spend_bytes(4 * pattern.num_bytes())) return {};
  const std::string& text = pattern.text();
  for (size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '%' || at + 1 >= text.size()) {
      out.append(pattern, at, at + 1);
      continue;
    }
    const bool bare = text[at + 1] == '-' && at + 2 < text.size();
    at += bare ? 2 : 1;
    const auto number = [&](int value, int width) {
      return format("%0*d", bare ? 0 : width, value);
    };
    std::string part;
    switch (text[at]) {
      case 'a':
        part = day.substr(0, 3);
        break;
      case 'A':
        part = day;
        break;
      case 'b':
      case 'h':
        part = month.substr(0, 3);
        break;
      case 'B':
        part = month;
        break;
      case 'd':
        part = number(now.tm_mday, 2);
        break;
      case 'e':
        part = bare ? number(now.tm_mday, 0) : format("%2d", now.tm_mday);
        break;
      case 'm':
        part = number(now.tm_mon + 1, 2);
        break;
      case 'y':
        part = number(((year % 100) + 100) % 100, 2);
        break;
      case 'Y':
        part = std::to_string(year);
        break;
      case 'H':
        part = number(now.tm_hour, 2);
        break;
      case 'I':
        part = number(hour12, 2);
        break;
      case 'M':
        part = number(now.tm_min, 2);
        break;
      case 'S':
        part = number(now.tm_sec, 2);
        break;
      case 'p':
        part = now.tm_hour < 12 ? "AM" : "PM";
        break;
      case 'j':
        part = number(now.tm_yday + 1, 3);
        break;
      case 'F':
        part = format("%d-%02d-%02d", year, now.tm_mon + 1, now.tm_mday);
        break;
      case 'T':
        part = format("%02d:%02d:%02d", now.tm_hour, now.tm_min, now.tm_sec);
        break;
      case 'R':
        part = format("%02d:%02d", now.tm_hour, now.tm_min);
        break;
      case '%':
        part = "%";
        break;
      default:
        in.budget.fail(std::string("strftime_now: '%") + text[at] + "' is not supported");
        return {};
    }
    out.append(part, false);
  }
  return out.build();
}

constexpr Builtin kGlobals[] = {
    {"dict", g_dict, "*"},
    {"namespace", g_namespace, "*"},
    {"raise_exception", g_raise, "message", 1},
    {"range", g_range, "*"},
    {"strftime_now", g_strftime, "format", 1},
};

}  // namespace

const Builtin* find_method(Kind kind, std::string_view name) {
  switch (kind) {
    case Kind::kString:
      return find(kStringMethods, name);
    case Kind::kDict:
      return find(kDictMethods, name);
    case Kind::kList:
      return find(kListMethods, name);
    case Kind::kTuple:
      return name == "count" || name == "index" ? find(kListMethods, name) : nullptr;
    case Kind::kLoop:
      return find(kLoopMethods, name);
    default:
      return nullptr;
  }
}

const Builtin* find_global(std::string_view name) { return find(kGlobals, name); }

}  // namespace invar::jinja
