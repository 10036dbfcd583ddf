// Expressions of a template: operators, slices, calls of filters and tests. What names and
// attributes mean stands in jinja_interpreter.cc, arithmetic in jinja_arithmetic.cc.
#include <algorithm>

#include "base/check.h"
#include "tokenizer/jinja_interpreter.h"

namespace invar::jinja {

Value Interpreter::eval(const Expr& expr) {
  const Nesting nesting(*this);
  if (!nesting.ok) return {};
  line_ = expr.line;
  switch (expr.kind) {
    case ExprKind::kConst:
      return expr.value;
    case ExprKind::kName:
      return lookup(expr.name);
    case ExprKind::kList:
    case ExprKind::kTuple:
    case ExprKind::kDict:
      return eval_container(expr);
    case ExprKind::kGetAttr:
    case ExprKind::kGetItem:
      return eval_subscript(expr);
    case ExprKind::kSlice:
      break;  // taken by kGetItem
    case ExprKind::kCall:
      return eval_call(expr);
    case ExprKind::kFilter:
    case ExprKind::kTest:
      return eval_builtin(expr, nullptr);
    case ExprKind::kCond:
    case ExprKind::kAnd:
    case ExprKind::kOr:
    case ExprKind::kNot:
      return eval_logic(expr);
    case ExprKind::kNeg:
    case ExprKind::kPos:
      return eval_sign(expr);
    case ExprKind::kBinary:
      return eval_binary(expr);
    case ExprKind::kConcat:
      return eval_concat(expr);
    case ExprKind::kCompare:
      return eval_compare(expr);
  }
  INVAR_CHECK(false, "expression kind %d", static_cast<int>(expr.kind));
  return {};
}

Value Interpreter::eval_container(const Expr& expr) {
  if (expr.kind == ExprKind::kDict) {
    auto dict = std::make_shared<Dict>();
    for (size_t i = 0; i + 1 < expr.args.size(); i += 2) {
      const Value key = eval(*expr.args[i]);
      if (!dict->set(budget, key, eval(*expr.args[i + 1]))) return {};
    }
    return make_dict(budget, std::move(dict));
  }
  List items;
  items.reserve(expr.args.size());
  for (const ExprPtr& arg : expr.args) items.push_back(eval(*arg));
  if (budget.failed()) return {};
  return make_list(budget, std::move(items),
                   expr.kind == ExprKind::kList ? Kind::kList : Kind::kTuple);
}

Value Interpreter::eval_subscript(const Expr& expr) {
  const Value object = eval(*expr.args[0]);
  if (budget.failed()) return {};
  if (expr.kind == ExprKind::kGetAttr) {
    line_ = expr.line;
    return attribute(object, expr.text);
  }
  if (expr.args[1]->kind == ExprKind::kSlice) return slice(object, *expr.args[1]);
  const Value key = eval(*expr.args[1]);
  return budget.failed() ? Value() : item(object, key);
}

Value Interpreter::slice(const Value& object, const Expr& bounds) {
  Value parts[3];
  for (int i = 0; i < 3; ++i) parts[i] = bounds.args[i] ? eval(*bounds.args[i]) : Value::none();
  if (budget.failed()) return {};
  const int64_t length = length_of(object);
  if (object.is_undefined()) {
    budget.fail(undefined_why(object));
    return {};
  }
  if (length < 0 || object.is_dict())
    return Value::undefined(std::string("a ") + type_name(object) + " cannot be sliced");
  for (const Value& part : parts) {
    if (part.is_none() || part.is_integral()) continue;
    // Jinja's subscripts turn Python's TypeError into undefined.
    return Value::undefined("a slice needs integers");
  }
  const int64_t step = parts[2].is_none() ? 1 : parts[2].as_int();
  if (step == 0 || step == INT64_MIN) {
    budget.fail("the step of a slice must not be 0");
    return {};
  }
  const auto bound = [&](const Value& part, int64_t missing) {
    if (part.is_none()) return missing;
    int64_t i = part.as_int();
    if (i < 0) i = i < -length ? -1 : i + length;
    if (step > 0) return std::clamp(i, int64_t{0}, length);
    return std::clamp(i, int64_t{-1}, length - 1);
  };
  const int64_t begin = bound(parts[0], step > 0 ? 0 : length - 1);
  const int64_t end = bound(parts[1], step > 0 ? length : -1);
  const int64_t distance = step > 0 ? end - begin : begin - end;
  const int64_t stride = step > 0 ? step : -step;
  const int64_t count = distance > 0 ? (distance - 1) / stride + 1 : 0;
  if (!budget.spend(count / 4)) return {};

  if (object.is(Kind::kRange)) {
    const auto& range = object.as<RangeObject>();
    auto part = std::make_shared<RangeObject>();
    part->start = range.start + begin * range.step;
    part->stop = range.start + end * range.step;
    // A slice of one number or none may have any stride, whose product could overflow.
    if (count > 1) part->step = range.step * step;
    part->count = count;
    return Value(Kind::kRange, std::move(part));
  }
  if (object.is_string()) {
    const Str str = object.as_str();
    if (!budget.spend_bytes(str.num_bytes())) return {};
    if (step == 1) return str.bytes(str.offset_of(begin), str.offset_of(std::max(begin, end)));
    std::vector<size_t> offsets;  // of each character
    for (size_t at = 0; at < str.num_bytes(); at += char_size(str.text(), at))
      offsets.push_back(at);
    StrBuilder out;
    for (int64_t k = 0; k < count; ++k) {
      const size_t at = offsets[static_cast<size_t>(begin + k * step)];
      out.append(str, at, at + char_size(str.text(), at));
    }
    return out.build();
  }
  List items;
  items.reserve(static_cast<size_t>(count));
  for (int64_t k = 0; k < count; ++k)
    items.push_back(object.items()[static_cast<size_t>(begin + k * step)]);
  return make_list(budget, std::move(items), object.kind());
}

CallArgs Interpreter::eval_args(const Expr& expr) {
  CallArgs args;
  for (size_t i = 1; i < expr.args.size(); ++i) args.positional.push_back(eval(*expr.args[i]));
  for (const auto& [name, arg] : expr.named) args.named.emplace_back(name, eval(*arg));
  return args;
}

Value Interpreter::eval_call(const Expr& expr) {
  const Value callee = eval(*expr.args[0]);
  if (budget.failed()) return {};
  CallArgs args = eval_args(expr);
  if (budget.failed()) return {};
  line_ = expr.line;
  return call(callee, std::move(args));
}

Value Interpreter::eval_builtin(const Expr& expr, const Value* input) {
  const bool is_test = expr.kind == ExprKind::kTest;
  Value self;
  if (expr.args[0] == nullptr) {
    INVAR_CHECK(input != nullptr, "a filter without input");
    self = *input;
  } else if (input != nullptr) {  // in a filter block: the chain's first filter is further in
    self = eval_builtin(*expr.args[0], input);
  } else {
    self = eval(*expr.args[0]);
  }
  if (budget.failed()) return {};
  const CallArgs args = eval_args(expr);
  if (budget.failed()) return {};
  line_ = expr.line;
  return apply(*expr.builtin, self, args, is_test ? "test" : "filter");
}

Value Interpreter::eval_logic(const Expr& expr) {
  Value first = eval(*expr.args[0]);
  if (budget.failed()) return {};
  const bool truth = truthy(first);
  switch (expr.kind) {
    case ExprKind::kNot:
      return Value::boolean(!truth);
    case ExprKind::kAnd:
      return truth ? eval(*expr.args[1]) : first;
    case ExprKind::kOr:
      return truth ? first : eval(*expr.args[1]);
    default:
      break;
  }
  if (truth) return eval(*expr.args[1]);
  if (expr.args[2] != nullptr) return eval(*expr.args[2]);
  return Value::undefined("the conditional expression has no else");
}

Value Interpreter::eval_sign(const Expr& expr) {
  const Value value = eval(*expr.args[0]);
  if (budget.failed()) return {};
  const bool negative = expr.kind == ExprKind::kNeg;
  if (value.is(Kind::kFloat)) return negative ? Value::real(-value.as_double()) : value;
  if (value.is_integral() && value.as_int() != INT64_MIN)
    return Value::integer(negative ? -value.as_int() : value.as_int());
  budget.fail(value.is_undefined() ? undefined_why(value)
                                   : std::string("a ") + type_name(value) + " has no sign");
  return {};
}

Value Interpreter::eval_binary(const Expr& expr) {
  const Value left = eval(*expr.args[0]);
  if (budget.failed()) return {};
  const Value right = eval(*expr.args[1]);
  if (budget.failed()) return {};
  line_ = expr.line;
  return arithmetic(*this, expr.op, left, right);
}

Value Interpreter::eval_concat(const Expr& expr) {
  StrBuilder out;
  for (const ExprPtr& arg : expr.args) {
    const Value value = eval(*arg);
    if (budget.failed()) return {};
    append_str(budget, out, value);
  }
  return out.build();
}

bool Interpreter::compare_once(CompareOp op, const Value& a, const Value& b) {
  switch (op) {
    case CompareOp::kEq:
      return equal(budget, a, b);
    case CompareOp::kNe:
      return !equal(budget, a, b);
    case CompareOp::kLt:
      return compare(budget, a, b, "<") == -1;
    case CompareOp::kLe:
      return compare(budget, a, b, "<=") <= 0;
    case CompareOp::kGt:
      return compare(budget, a, b, ">") == 1;
    case CompareOp::kGe: {
      const int order = compare(budget, a, b, ">=");
      return order == 0 || order == 1;
    }
    case CompareOp::kIn:
      return contains(b, a);
    case CompareOp::kNotIn:
      return !contains(b, a);
  }
  return false;
}

Value Interpreter::eval_compare(const Expr& expr) {
  Value left = eval(*expr.args[0]);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    if (budget.failed()) return {};
    Value right = eval(*expr.args[i + 1]);
    if (budget.failed()) return {};
    line_ = expr.line;
    if (!compare_once(expr.ops[i], left, right)) return Value::boolean(false);
    left = std::move(right);
  }
  return Value::boolean(true);
}

}  // namespace invar::jinja
