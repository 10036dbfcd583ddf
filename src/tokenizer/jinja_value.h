// Value: what Jinja expressions yield, with Python's rules for truth, equality, order and printing.
// Everything but namespaces and loops is immutable. Nesting is limited, so that walking, printing
// and freeing a value may recurse.
#pragma once

#include <algorithm>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/json.h"
#include "base/keyed_hash.h"
#include "tokenizer/chat_template.h"
#include "tokenizer/jinja_string.h"

namespace invar::jinja {

inline constexpr int kMaxValueDepth = 120;

// What one rendering may still spend, and the first thing that went wrong. Functions that fail say
// so here and return any value; whoever loops or goes on checks failed().
class Budget {
 public:
  explicit Budget(const TemplateLimits& the_limits)
      : limits(the_limits), steps_left_(the_limits.max_steps) {}

  const TemplateLimits& limits;

  bool failed() const { return failed_; }
  const std::string& error() const { return error_; }
  void fail(std::string why) {
    if (!failed_) error_ = std::move(why);
    failed_ = true;
  }
  // False when the budget is used up (or something failed before).
  bool spend(int64_t steps) {
    steps_left_ -= steps;
    if (steps_left_ >= 0) [[likely]]
      return !failed_;
    fail("the limit of " + std::to_string(limits.max_steps) + " steps was passed");
    return false;
  }
  // For text that is made or read: also bounds the memory of all strings together.
  bool spend_bytes(size_t num_bytes) {
    if (num_bytes > limits.max_output_bytes) {
      fail("the limit of " + std::to_string(limits.max_output_bytes) +
           " bytes for a text was passed");
      return false;
    }
    return spend(1 + static_cast<int64_t>(num_bytes / 16));
  }

 private:
  int64_t steps_left_;
  bool failed_ = false;
  std::string error_;
};

enum class Kind : uint8_t {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kRange,
  kNamespace,
  kMacro,
  kFunction,  // a global: range, namespace, ...
  kMethod,    // a method with its receiver
  kLoop,
};

class Value;
using List = std::vector<Value>;
struct Dict;
struct ListObject;

class Value {
 public:
  Value() = default;  // undefined, without a hint
  static Value undefined(std::string why);
  static Value none() { return Value(Kind::kNone); }
  static Value boolean(bool b) {
    Value v(Kind::kBool);
    v.bool_ = b;
    return v;
  }
  static Value integer(int64_t i) {
    Value v(Kind::kInt);
    v.int_ = i;
    return v;
  }
  static Value real(double d) {
    Value v(Kind::kFloat);
    v.double_ = d;
    return v;
  }
  Value(const Str& str) : kind_(Kind::kString), object_(str.data()) {}
  static Value string(std::string text, bool trusted) { return Str(std::move(text), trusted); }
  Value(Kind kind, std::shared_ptr<const Object> object)
      : kind_(kind), object_(std::move(object)) {}

  Kind kind() const { return kind_; }
  bool is(Kind kind) const { return kind_ == kind; }
  bool is_undefined() const { return kind_ == Kind::kUndefined; }
  bool is_none() const { return kind_ == Kind::kNone; }
  bool is_string() const { return kind_ == Kind::kString; }
  bool is_sequence() const { return kind_ == Kind::kList || kind_ == Kind::kTuple; }
  bool is_dict() const { return kind_ == Kind::kDict; }
  // As in Python, booleans are integers.
  bool is_integral() const { return kind_ == Kind::kInt || kind_ == Kind::kBool; }
  bool is_number() const { return is_integral() || kind_ == Kind::kFloat; }

  bool as_bool() const { return bool_; }
  int64_t as_int() const { return kind_ == Kind::kBool ? bool_ : int_; }
  double as_double() const {
    return kind_ == Kind::kFloat ? double_ : static_cast<double>(as_int());
  }
  Str as_str() const { return Str(std::static_pointer_cast<const StrData>(object_)); }
  const std::string& text() const { return static_cast<const StrData&>(*object_).text; }
  const List& items() const;  // list or tuple
  const Dict& dict() const;
  template <typename T>
  const T& as() const {
    return static_cast<const T&>(*object_);
  }
  const std::shared_ptr<const Object>& object() const { return object_; }

 private:
  explicit Value(Kind kind) : kind_(kind) {}

  Kind kind_ = Kind::kUndefined;
  union {
    bool bool_;
    int64_t int_ = 0;
    double double_;
  };
  std::shared_ptr<const Object> object_;
};

struct UndefinedHint : Object {
  std::string why;
};
struct ListObject : Object {
  List items;
  int depth = 1;
};
// Insertion order; a key is looked up by equality, with an index once there are many.
struct Dict : Object {
  std::vector<std::pair<Value, Value>> members;
  std::unordered_map<std::string, size_t, KeyedHash> index;
  int depth = 1;

  const Value* find(std::string_view key) const;  // string keys
  const Value* find(Budget& budget, const Value& key) const;
  // False with a failed budget when the key cannot be one.
  bool set(Budget& budget, const Value& key, Value value);
};
struct RangeObject : Object {
  int64_t start = 0, step = 1, count = 0;
  int64_t stop = 0;  // as given, for repr()
  Value at(int64_t i) const { return Value::integer(start + i * step); }
};
struct NamespaceObject : Object {
  mutable std::vector<std::pair<std::string, Value>> members;
};
struct LoopObject : Object {
  mutable List items;
  mutable int64_t index0 = 0;
  // The items are not all known yet: filtered while the loop runs, see For in jinja_interpreter.cc.
  bool lazy = false;
  mutable Value previous, next;
  int value_depth = 1;
};

// Fails the budget when it would be nested too deep.
Value make_list(Budget& budget, List items, Kind kind = Kind::kList);
Value make_dict(Budget& budget, std::shared_ptr<Dict> dict);
int depth_of(const Value& value);

Value from_json(Budget& budget, const Json& json);

const char* type_name(const Value& value);  // "str", "dict", ... as Python calls them
const std::string& undefined_why(const Value& value);

bool truthy(const Value& value);
bool equal(Budget& budget, const Value& a, const Value& b);
// -1, 0, 1; 2 for NaN; fails for kinds without an order between them. `op` is for the message.
int compare(Budget& budget, const Value& a, const Value& b, const char* op = "<");
// Elements of anything that can be iterated over; fails for what cannot.
List iterate(Budget& budget, const Value& value);
// Number of elements; -1 when there is no such thing.
int64_t length_of(const Value& value);

// Python's str() and repr().
Str to_str(Budget& budget, const Value& value);
void append_str(Budget& budget, StrBuilder& out, const Value& value);
void append_repr(Budget& budget, StrBuilder& out, const Value& value);
std::string float_repr(double value);

struct JsonStyle {
  bool ensure_ascii = false, sort_keys = false;
  std::optional<std::string> indent;  // text of one level
  Str item_separator, key_separator;
};
void append_json(Budget& budget, StrBuilder& out, const Value& value, const JsonStyle& style);

// Stable; `less` may be anything, also inconsistent.
template <typename T, typename Less>
void merge_sort(std::vector<T>& items, Less less) {
  std::vector<T> other(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin, right = middle;
      for (size_t i = begin; i < end; ++i) {
        const bool take_right = left == middle || (right < end && less(items[right], items[left]));
        other[i] = std::move(take_right ? items[right++] : items[left++]);
      }
    }
    std::swap(items, other);
  }
}

}  // namespace invar::jinja
