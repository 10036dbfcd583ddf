// Numbers of a range as automata over their digits.
#pragma once

#include <optional>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "constraint/grammar.h"

namespace invar {

// A bound as exact decimal digits: whole without leading zeros, fraction without trailing ones.
struct Decimal {
  bool negative = false;
  std::string whole = "0", fraction;

  bool is_zero() const { return whole == "0" && fraction.empty(); }
};

struct NumberBound {
  Decimal value;
  bool exclusive = false;
};

struct NumberRange {
  bool integer = false;
  std::optional<NumberBound> low, high;
  int64_t multiple_of = 1;  // integers only
};

// Error: beyond 19 digits on either side.
Result<Decimal> to_decimal(const Json& number);
// -1, 0 or 1.
int compare(const Decimal& a, const Decimal& b);

// Texts of the numbers of the range from `from` to `to`. Integers lie within 64 bits. Numbers
// without bounds have at most 19 digits before and 20 behind the point and an exponent below 280,
// so that all are finite; with a bound they have no exponent, and at most 15 digits where there is
// a fraction: such texts are told apart by their doubles too, so that a validator that compares
// doubles agrees.
void add_number(GrammarBuilder& builder, StateId from, StateId to, const NumberRange& range);

}  // namespace invar
