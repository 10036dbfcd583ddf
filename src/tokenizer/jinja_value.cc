// Values: truth, equality, order, iteration. Printing stands in jinja_print.cc.
#include "tokenizer/jinja_value.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/result.h"

namespace invar::jinja {

constexpr size_t kIndexedMembers = 12;

Value Value::undefined(std::string why) {
  auto hint = std::make_shared<UndefinedHint>();
  hint->why = std::move(why);
  return Value(Kind::kUndefined, std::move(hint));
}

const std::string& undefined_why(const Value& value) {
  static const std::string unknown = "value is undefined";
  return value.object() ? value.as<UndefinedHint>().why : unknown;
}

const List& Value::items() const { return as<ListObject>().items; }
const Dict& Value::dict() const { return as<Dict>(); }

int depth_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return value.as<ListObject>().depth;
    case Kind::kDict:
      return value.dict().depth;
    case Kind::kLoop:
      return value.as<LoopObject>().value_depth;
    // A method holds its receiver, which must not become a way around the limit.
    case Kind::kMethod:
      return kMaxValueDepth;
    default:
      return 0;
  }
}

namespace {

bool check_depth(Budget& budget, int depth) {
  if (depth <= kMaxValueDepth) return true;
  budget.fail("values are nested deeper than " + std::to_string(kMaxValueDepth));
  return false;
}

}  // namespace

Value make_list(Budget& budget, List items, Kind kind) {
  if (!budget.spend(1 + static_cast<int64_t>(items.size()))) return {};
  auto list = std::make_shared<ListObject>();
  for (const Value& item : items) list->depth = std::max(list->depth, depth_of(item) + 1);
  if (!check_depth(budget, list->depth)) return {};
  list->items = std::move(items);
  return Value(kind, std::move(list));
}

Value make_dict(Budget& budget, std::shared_ptr<Dict> dict) {
  if (!budget.spend(1 + static_cast<int64_t>(dict->members.size()))) return {};
  for (const auto& [key, value] : dict->members)
    dict->depth = std::max({dict->depth, depth_of(key) + 1, depth_of(value) + 1});
  if (!check_depth(budget, dict->depth)) return {};
  return Value(Kind::kDict, std::move(dict));
}

// ---- Dict
// ----------------------------------------------------------------------------------------

namespace {

// A text that is equal for keys that are equal: 1, 1.0 and true are one key. False: no key.
bool canonical_key(Budget& budget, const Value& key, std::string& out) {
  switch (key.kind()) {
    case Kind::kString:
      out += "s" + std::to_string(key.text().size()) + ":" + key.text();
      break;
    case Kind::kNone:
      out += "n";
      break;
    case Kind::kUndefined:
      out += "u";
      break;
    case Kind::kBool:
    case Kind::kInt:
      out += "i" + std::to_string(key.as_int()) + ";";
      break;
    case Kind::kFloat: {
      const double d = key.as_double();
      const bool integral = d == std::floor(d) && std::fabs(d) < 9e18;
      out += integral ? "i" + std::to_string(static_cast<int64_t>(d)) + ";"
                      : "f" + float_repr(d) + ";";
      break;
    }
    case Kind::kTuple:
      out += "(";
      for (const Value& item : key.items())
        if (!budget.spend(1) || !canonical_key(budget, item, out)) return false;
      out += ")";
      break;
    default:
      budget.fail(std::string("a ") + type_name(key) + " cannot be the key of a dict");
      return false;
  }
  return budget.spend_bytes(out.size());
}

bool same_simple_key(const Value& a, const Value& b) {
  if (a.is_string() && b.is_string()) return a.text() == b.text();
  if (a.is_integral() && b.is_integral()) return a.as_int() == b.as_int();
  return false;
}

}  // namespace

const Value* Dict::find(std::string_view key) const {
  if (!index.empty()) {
    const auto found = index.find("s" + std::to_string(key.size()) + ":" + std::string(key));
    return found == index.end() ? nullptr : &members[found->second].second;
  }
  for (const auto& [name, value] : members)
    if (name.is_string() && name.text() == key) return &value;
  return nullptr;
}

const Value* Dict::find(Budget& budget, const Value& key) const {
  if (index.empty() && (key.is_string() || key.is_integral())) {
    for (const auto& [name, value] : members) {
      if (same_simple_key(name, key)) return &value;
      if (name.is(Kind::kFloat) && equal(budget, name, key)) return &value;
    }
    return nullptr;
  }
  std::string canonical;
  if (!canonical_key(budget, key, canonical)) return nullptr;
  if (!index.empty()) {
    const auto found = index.find(canonical);
    return found == index.end() ? nullptr : &members[found->second].second;
  }
  for (const auto& [name, value] : members)
    if (budget.spend(1) && equal(budget, name, key)) return &value;
  return nullptr;
}

bool Dict::set(Budget& budget, const Value& key, Value value) {
  std::string canonical;
  if (!canonical_key(budget, key, canonical)) return false;
  if (const Value* present = find(budget, key)) {
    *const_cast<Value*>(present) = std::move(value);
    return true;
  }
  members.emplace_back(key, std::move(value));
  if (!index.empty()) {
    index.emplace(std::move(canonical), members.size() - 1);
  } else if (members.size() > kIndexedMembers) {
    for (size_t i = 0; i < members.size(); ++i) {
      std::string name;
      canonical_key(budget, members[i].first, name);
      index.emplace(std::move(name), i);
    }
  }
  return !budget.failed();
}

// ---- From JSON
// -----------------------------------------------------------------------------------

namespace {

Value convert(Budget& budget, const Json& json, int depth) {
  if (!check_depth(budget, depth)) return {};
  switch (json.kind()) {
    case Json::Kind::kNull:
      return Value::none();
    case Json::Kind::kBool:
      return Value::boolean(json.as_bool());
    case Json::Kind::kInt:
      return Value::integer(json.as_int());
    case Json::Kind::kDouble:
      return Value::real(json.as_double());
    case Json::Kind::kString:
      return Value::string(json.as_string(), false);
    case Json::Kind::kArray: {
      auto list = std::make_shared<ListObject>();
      list->items.reserve(json.items().size());
      for (const Json& item : json.items()) {
        list->items.push_back(convert(budget, item, depth + 1));
        list->depth = std::max(list->depth, depth_of(list->items.back()) + 1);
      }
      return Value(Kind::kList, std::move(list));
    }
    case Json::Kind::kObject: {
      auto dict = std::make_shared<Dict>();
      dict->members.reserve(json.members().size());
      for (const auto& [key, member] : json.members()) {
        Value value = convert(budget, member, depth + 1);
        dict->depth = std::max(dict->depth, depth_of(value) + 1);
        // The keys of a Json object are distinct: no look-up needed.
        dict->members.emplace_back(Value::string(key, false), std::move(value));
      }
      if (dict->members.size() > kIndexedMembers) {
        for (size_t i = 0; i < dict->members.size(); ++i) {
          const std::string& key = dict->members[i].first.text();
          dict->index.emplace("s" + std::to_string(key.size()) + ":" + key, i);
        }
      }
      return Value(Kind::kDict, std::move(dict));
    }
  }
  return {};
}

}  // namespace

Value from_json(Budget& budget, const Json& json) { return convert(budget, json, 1); }

// ---- What Python says about a value
// --------------------------------------------------------------

const char* type_name(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return "Undefined";
    case Kind::kNone:
      return "NoneType";
    case Kind::kBool:
      return "bool";
    case Kind::kInt:
      return "int";
    case Kind::kFloat:
      return "float";
    case Kind::kString:
      return "str";
    case Kind::kList:
      return "list";
    case Kind::kTuple:
      return "tuple";
    case Kind::kDict:
      return "dict";
    case Kind::kRange:
      return "range";
    case Kind::kNamespace:
      return "Namespace";
    case Kind::kMacro:
      return "Macro";
    case Kind::kFunction:
      return "function";
    case Kind::kMethod:
      return "method";
    case Kind::kLoop:
      return "LoopContext";
  }
  return "object";
}

bool truthy(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return false;
    case Kind::kBool:
      return value.as_bool();
    case Kind::kInt:
      return value.as_int() != 0;
    case Kind::kFloat:
      return value.as_double() != 0;
    case Kind::kString:
      return !value.text().empty();
    case Kind::kList:
    case Kind::kTuple:
      return !value.items().empty();
    case Kind::kDict:
      return !value.dict().members.empty();
    case Kind::kRange:
      return value.as<RangeObject>().count > 0;
    default:
      return true;
  }
}

namespace {

// Exact, where a conversion of the integer to double would round.
int compare_numbers(const Value& a, const Value& b) {
  if (a.is_integral() && b.is_integral())
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int();
  const double x = a.as_double(), y = b.as_double();
  if (std::isnan(x) || std::isnan(y)) return 2;
  if (x != y || (!a.is_integral() && !b.is_integral())) return x < y ? -1 : x > y;
  const bool a_is_int = a.is_integral();
  const double d = a_is_int ? y : x;
  const int64_t i = a_is_int ? a.as_int() : b.as_int();
  if (d >= 9223372036854775808.0) return a_is_int ? -1 : 1;
  const auto truncated = static_cast<int64_t>(d);
  const int order = i < truncated ? -1 : i > truncated;
  return a_is_int ? order : -order;
}

}  // namespace

bool equal(Budget& budget, const Value& a, const Value& b) {
  if (!budget.spend(1)) return false;
  if (a.is_number() && b.is_number()) return compare_numbers(a, b) == 0;
  if (a.kind() != b.kind()) return false;
  switch (a.kind()) {
    case Kind::kUndefined:
    case Kind::kNone:
      return true;
    case Kind::kString:
      return budget.spend_bytes(std::min(a.text().size(), b.text().size())) && a.text() == b.text();
    case Kind::kList:
    case Kind::kTuple: {
      const List &x = a.items(), &y = b.items();
      if (x.size() != y.size()) return false;
      for (size_t i = 0; i < x.size(); ++i)
        if (!equal(budget, x[i], y[i])) return false;
      return true;
    }
    case Kind::kDict: {
      const Dict &x = a.dict(), &y = b.dict();
      if (x.members.size() != y.members.size()) return false;
      for (const auto& [key, value] : x.members) {
        const Value* other = y.find(budget, key);
        if (other == nullptr || !equal(budget, value, *other)) return false;
      }
      return true;
    }
    case Kind::kRange: {
      const auto &x = a.as<RangeObject>(), &y = b.as<RangeObject>();
      return x.count == y.count && (x.count == 0 || x.start == y.start) &&
             (x.count < 2 || x.step == y.step);
    }
    default:
      return a.object() == b.object();
  }
}

int compare(Budget& budget, const Value& a, const Value& b, const char* op) {
  if (!budget.spend(1)) return 0;
  if (a.is_number() && b.is_number()) return compare_numbers(a, b);
  if (a.is_string() && b.is_string()) {
    budget.spend_bytes(std::min(a.text().size(), b.text().size()));
    const int order = a.text().compare(b.text());
    return order < 0 ? -1 : order > 0;
  }
  if (a.is_sequence() && a.kind() == b.kind()) {
    const List &x = a.items(), &y = b.items();
    for (size_t i = 0; i < std::min(x.size(), y.size()) && !budget.failed(); ++i)
      if (!equal(budget, x[i], y[i])) return compare(budget, x[i], y[i], op);
    return x.size() < y.size() ? -1 : x.size() > y.size();
  }
  if (a.is_undefined() || b.is_undefined()) {
    budget.fail(undefined_why(a.is_undefined() ? a : b));
  } else {
    budget.fail(
        format("'%s' is not supported between '%s' and '%s'", op, type_name(a), type_name(b)));
  }
  return 0;
}

int64_t length_of(const Value& value) {
  switch (value.kind()) {
    case Kind::kUndefined:
      return 0;
    case Kind::kString:
      return value.as<StrData>().length;
    case Kind::kList:
    case Kind::kTuple:
      return static_cast<int64_t>(value.items().size());
    case Kind::kDict:
      return static_cast<int64_t>(value.dict().members.size());
    case Kind::kRange:
      return value.as<RangeObject>().count;
    default:
      return -1;
  }
}

List iterate(Budget& budget, const Value& value) {
  List items;
  const int64_t length = length_of(value);
  if (length < 0) {
    budget.fail(std::string("'") + type_name(value) + "' cannot be iterated over");
    return items;
  }
  if (!budget.spend(length)) return items;
  switch (value.kind()) {
    case Kind::kList:
    case Kind::kTuple:
      return value.items();
    case Kind::kDict:
      for (const auto& member : value.dict().members) items.push_back(member.first);
      break;
    case Kind::kRange:
      for (int64_t i = 0; i < length; ++i) items.push_back(value.as<RangeObject>().at(i));
      break;
    case Kind::kString: {
      const Str str = value.as_str();
      budget.spend(9 * length);  // a string of its own for each character
      for (size_t at = 0; at < str.num_bytes() && !budget.failed();) {
        const size_t size = char_size(str.text(), at);
        items.push_back(str.bytes(at, at + size));
        at += size;
      }
      break;
    }
    default:
      break;
  }
  return items;
}

}  // namespace invar::jinja
