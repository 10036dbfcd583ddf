// + - * / // % ** with Python's rules. Integers have 64 bits: what does not fit is an error.
#include <cmath>

#include "base/result.h"
#include "tokenizer/jinja_interpreter.h"
#include "tokenizer/jinja_text.h"

namespace invar::jinja {
namespace {

Value overflow(Budget& budget) {
  budget.fail("the result has more than 64 bits");
  return {};
}

// Rounds towards minus infinity, as Python's // and % do.
int64_t floor_div(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a % b < 0) != (b < 0)); }

double floor_mod(double a, double b) {
  double mod = std::fmod(a, b);
  if (mod != 0 && (mod < 0) != (b < 0)) mod += b;
  if (mod == 0) mod = std::copysign(0.0, b);
  return mod;
}

double floor_div(double a, double b) {
  const double mod = floor_mod(a, b);
  const double div = (a - mod) / b;
  if (div == 0) return std::copysign(0.0, a / b);
  const double floored = std::floor(div);
  return div - floored > 0.5 ? floored + 1 : floored;
}

Value integer_power(Budget& budget, int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) {
      budget.fail("0 cannot be raised to a negative power");
      return {};
    }
    return Value::real(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  if (base == 0 || base == 1) return Value::integer(exponent == 0 ? 1 : base);
  if (base == -1) return Value::integer(exponent % 2 == 0 ? 1 : -1);
  if (exponent > 63) return overflow(budget);
  int64_t result = 1;
  for (; exponent > 0; --exponent)
    if (__builtin_mul_overflow(result, base, &result)) return overflow(budget);
  return Value::integer(result);
}

Value integers(Budget& budget, char op, int64_t a, int64_t b) {
  int64_t result = 0;
  if ((op == '/' || op == 'f' || op == '%') && b == 0) {
    budget.fail("division by zero");
    return {};
  }
  switch (op) {
    case '+':
      return __builtin_add_overflow(a, b, &result) ? overflow(budget) : Value::integer(result);
    case '-':
      return __builtin_sub_overflow(a, b, &result) ? overflow(budget) : Value::integer(result);
    case '*':
      return __builtin_mul_overflow(a, b, &result) ? overflow(budget) : Value::integer(result);
    case '/':
      return Value::real(static_cast<double>(a) / static_cast<double>(b));
    case 'f':
      if (a == INT64_MIN && b == -1) return overflow(budget);
      return Value::integer(floor_div(a, b));
    case '%':
      if (b == -1) return Value::integer(0);
      return Value::integer(a - floor_div(a, b) * b);
    default:
      return integer_power(budget, a, b);
  }
}

Value reals(Budget& budget, char op, double a, double b) {
  if ((op == '/' || op == 'f' || op == '%') && b == 0) {
    budget.fail("division by zero");
    return {};
  }
  switch (op) {
    case '+':
      return Value::real(a + b);
    case '-':
      return Value::real(a - b);
    case '*':
      return Value::real(a * b);
    case '/':
      return Value::real(a / b);
    case 'f':
      return Value::real(floor_div(a, b));
    case '%':
      return Value::real(floor_mod(a, b));
    default: {
      const double result = std::pow(a, b);
      if ((std::isnan(result) && !std::isnan(a) && !std::isnan(b)) || (a == 0 && b < 0)) {
        budget.fail("the power has no real value");
        return {};
      }
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) return overflow(budget);
      return Value::real(result);
    }
  }
}

Value repeat_list(Budget& budget, const Value& list, int64_t count) {
  const auto size = static_cast<__int128>(list.items().size()) * std::max<int64_t>(count, 0);
  if (size > budget.limits.max_steps) {
    budget.spend(budget.limits.max_steps + 1);
    return {};
  }
  if (!budget.spend(static_cast<int64_t>(size))) return {};
  List items;
  items.reserve(static_cast<size_t>(size));
  if (!list.items().empty())
    for (; count > 0; --count) items.insert(items.end(), list.items().begin(), list.items().end());
  return make_list(budget, std::move(items), list.kind());
}

}  // namespace

Value arithmetic(Interpreter& interpreter, char op, const Value& a, const Value& b) {
  Budget& budget = interpreter.budget;
  if (a.is_integral() && b.is_integral()) return integers(budget, op, a.as_int(), b.as_int());
  if (a.is_number() && b.is_number()) return reals(budget, op, a.as_double(), b.as_double());
  if (op == '%' && a.is_string()) return percent_format(budget, a.as_str(), b);
  if (op == '+' && a.is_string() && b.is_string()) {
    if (!budget.spend_bytes(a.text().size() + b.text().size())) return {};
    StrBuilder out;
    out.append(a.as_str());
    out.append(b.as_str());
    return out.build();
  }
  if (op == '+' && a.is_sequence() && a.kind() == b.kind()) {
    if (!budget.spend(static_cast<int64_t>(a.items().size() + b.items().size()))) return {};
    List items = a.items();
    items.insert(items.end(), b.items().begin(), b.items().end());
    return make_list(budget, std::move(items), a.kind());
  }
  if (op == '*') {
    const Value &many = a.is_integral() ? b : a, &count = a.is_integral() ? a : b;
    if (count.is_integral() && many.is_string())
      return repeat(budget, many.as_str(), count.as_int());
    if (count.is_integral() && many.is_sequence()) return repeat_list(budget, many, count.as_int());
  }
  if (a.is_undefined() || b.is_undefined()) {
    budget.fail(undefined_why(a.is_undefined() ? a : b));
    return {};
  }
  const std::string shown = op == 'f' ? "//" : op == 'p' ? "**" : std::string(1, op);
  budget.fail(format("'%s' is not supported between '%s' and '%s'", shown.c_str(), type_name(a),
                     type_name(b)));
  return {};
}

}  // namespace invar::jinja
