// The tests: what may stand behind `is`.
#include "base/result.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_parser.h"
#include "tokenizer/jinja_text.h"

namespace invar::jinja {
namespace {

using In = Interpreter;

template <Kind kind>
Value t_kind(In&, const Value& self, const Params&, const CallArgs&) {
  return Value::boolean(self.is(kind));
}
Value t_defined(In&, const Value& self, const Params&, const CallArgs&) {
  return Value::boolean(!self.is_undefined());
}
Value t_number(In&, const Value& self, const Params&, const CallArgs&) {
  return Value::boolean(self.is_number());
}
Value t_iterable(In&, const Value& self, const Params&, const CallArgs&) {
  return Value::boolean(length_of(self) >= 0);
}
Value t_callable(In&, const Value& self, const Params&, const CallArgs&) {
  // Jinja's undefined has a __call__ that fails.
  return Value::boolean(self.is(Kind::kMacro) || self.is(Kind::kFunction) ||
                        self.is(Kind::kMethod) || self.is(Kind::kLoop) || self.is_undefined());
}
Value t_true(In&, const Value& self, const Params&, const CallArgs&) {
  return Value::boolean(self.is(Kind::kBool) && self.as_bool());
}
Value t_false(In&, const Value& self, const Params&, const CallArgs&) {
  return Value::boolean(self.is(Kind::kBool) && !self.as_bool());
}
Value t_in(In& in, const Value& self, const Params& params, const CallArgs&) {
  return Value::boolean(in.contains(*params[0], self));
}
Value t_sameas(In& in, const Value& self, const Params& params, const CallArgs&) {
  return Value::boolean(self.kind() == params[0]->kind() && equal(in.budget, self, *params[0]));
}

template <CompareOp op>
Value t_compare(In& in, const Value& self, const Params& params, const CallArgs&) {
  if constexpr (op == CompareOp::kEq) return Value::boolean(equal(in.budget, self, *params[0]));
  if constexpr (op == CompareOp::kNe) return Value::boolean(!equal(in.budget, self, *params[0]));
  const int order = compare(in.budget, self, *params[0]);
  if constexpr (op == CompareOp::kLt) return Value::boolean(order == -1);
  if constexpr (op == CompareOp::kLe) return Value::boolean(order == -1 || order == 0);
  if constexpr (op == CompareOp::kGt) return Value::boolean(order == 1);
  return Value::boolean(order == 1 || order == 0);
}

Value divisible(In& in, const Value& self, const Value& by, int64_t remainder) {
  const Value rest = arithmetic(in, '%', self, by);
  return Value::boolean(!in.budget.failed() && equal(in.budget, rest, Value::integer(remainder)));
}
Value t_odd(In& in, const Value& self, const Params&, const CallArgs&) {
  return divisible(in, self, Value::integer(2), 1);
}
Value t_even(In& in, const Value& self, const Params&, const CallArgs&) {
  return divisible(in, self, Value::integer(2), 0);
}
Value t_divisibleby(In& in, const Value& self, const Params& params, const CallArgs&) {
  return divisible(in, self, *params[0], 0);
}

// str.islower and str.isupper: at least one letter, and none of the other case.
Value t_case(In& in, const Value& self, bool upper) {
  const Str str = to_str(in.budget, self);
  in.budget.spend_bytes(4 * str.num_bytes());
  bool any = false, other = false;
  for (size_t at = 0; at < str.num_bytes(); at += char_size(str.text(), at)) {
    const uint32_t c = decode_char(str.text(), at);
    if (to_upper(c) == to_lower(c)) continue;
    (c == (upper ? to_upper(c) : to_lower(c)) ? any : other) = true;
  }
  return Value::boolean(any && !other);
}
Value t_lower(In& in, const Value& self, const Params&, const CallArgs&) {
  return t_case(in, self, false);
}
Value t_upper(In& in, const Value& self, const Params&, const CallArgs&) {
  return t_case(in, self, true);
}
Value t_filter(In&, const Value& self, const Params&, const CallArgs&) {
  return Value::boolean(self.is_string() && find_filter(self.text()) != nullptr);
}
Value t_test(In&, const Value& self, const Params&, const CallArgs&) {
  return Value::boolean(self.is_string() && find_test(self.text()) != nullptr);
}

constexpr Builtin kTests[] = {
    {"boolean", t_kind<Kind::kBool>},
    {"callable", t_callable},
    {"defined", t_defined},
    {"divisibleby", t_divisibleby, "num", 1},
    {"eq", t_compare<CompareOp::kEq>, "other", 1},
    {"==", t_compare<CompareOp::kEq>, "other", 1},
    {"equalto", t_compare<CompareOp::kEq>, "other", 1},
    {"even", t_even},
    {"false", t_false},
    {"filter", t_filter},
    {"float", t_kind<Kind::kFloat>},
    {"ge", t_compare<CompareOp::kGe>, "other", 1},
    {">=", t_compare<CompareOp::kGe>, "other", 1},
    {"gt", t_compare<CompareOp::kGt>, "other", 1},
    {">", t_compare<CompareOp::kGt>, "other", 1},
    {"greaterthan", t_compare<CompareOp::kGt>, "other", 1},
    {"in", t_in, "seq", 1},
    {"integer", t_kind<Kind::kInt>},
    {"iterable", t_iterable},
    {"le", t_compare<CompareOp::kLe>, "other", 1},
    {"<=", t_compare<CompareOp::kLe>, "other", 1},
    {"lower", t_lower},
    {"lt", t_compare<CompareOp::kLt>, "other", 1},
    {"<", t_compare<CompareOp::kLt>, "other", 1},
    {"lessthan", t_compare<CompareOp::kLt>, "other", 1},
    {"mapping", t_kind<Kind::kDict>},
    {"ne", t_compare<CompareOp::kNe>, "other", 1},
    {"!=", t_compare<CompareOp::kNe>, "other", 1},
    {"none", t_kind<Kind::kNone>},
    {"number", t_number},
    {"odd", t_odd},
    {"sameas", t_sameas, "other", 1},
    {"sequence", t_iterable},
    {"string", t_kind<Kind::kString>},
    {"test", t_test},
    {"true", t_true},
    {"undefined", t_kind<Kind::kUndefined>},
    {"upper", t_upper},
};

}  // namespace

const Builtin* find_test(std::string_view name) {
  for (const Builtin& test : kTests)
    if (name == test.name) return &test;
  return nullptr;
}

}  // namespace invar::jinja
