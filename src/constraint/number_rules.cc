// Digits are compared with the bounds' from the left: a state knows how many digits are to come and
// whether all so far equal those of the lower or of the upper bound.
#include "constraint/number_rules.h"

#include <charconv>
#include <map>
#include <tuple>

#include "base/check.h"

namespace invar {
namespace {

constexpr size_t kMaxWholeDigits = 19;
constexpr size_t kMaxFractionDigits = 15;
constexpr size_t kExactDigits = 15;  // so many decimal digits survive a double

// Magnitudes between two bounds, both of them without sign.
struct Magnitudes {
  NumberBound low, high;
};

int compare_magnitude(const Decimal& a, const Decimal& b) {
  if (a.whole.size() != b.whole.size()) return a.whole.size() < b.whole.size() ? -1 : 1;
  const int whole = a.whole.compare(b.whole);
  const int order = whole != 0 ? whole : a.fraction.compare(b.fraction);
  return order < 0 ? -1 : order > 0 ? 1 : 0;
}

class RangeWriter {
 public:
  RangeWriter(GrammarBuilder& builder, StateId to, const Magnitudes& range, bool integer,
              int64_t multiple_of)
      : builder_(builder),
        to_(to),
        low_(range.low),
        high_(range.high),
        integer_(integer),
        multiple_(multiple_of) {}

  void add(StateId from) {
    const size_t shortest = low_.value.whole.size(), longest = high_.value.whole.size();
    for (size_t length = shortest; length <= longest; ++length)
      add_digits(from, length, 0, length == shortest, length == longest, 0);
  }

 private:
  static char digit_at(const std::string& digits, size_t i) {
    return i < digits.size() ? digits[i] : '0';
  }

  // Edges of the digits that may stand at `index` of `length` whole digits.
  void add_digits(StateId from, size_t length, size_t index, bool on_low, bool on_high,
                  int64_t remainder) {
    if (builder_.is_full()) return;
    if (index == length) return end_whole(from, length, on_low, on_high, remainder);
    const char first = on_low ? low_.value.whole[index] : index == 0 && length > 1 ? '1' : '0';
    const char last = on_high ? high_.value.whole[index] : '9';
    for (char digit = first; digit <= last; ++digit) {
      const bool low = on_low && digit == first, high = on_high && digit == last;
      const int64_t rest = multiple_ > 1 ? (remainder * 10 + (digit - '0')) % multiple_ : 0;
      // How a whole number may go on depends on its length only through what is still to come.
      const bool forget = integer_ && !low && !high;
      const Key key{forget ? 0 : length, length - index - 1, low, high, rest};
      const auto [it, is_new] = whole_.try_emplace(key, 0);
      if (is_new) {
        const StateId state = builder_.add_state();
        it->second = state;
        add_digits(state, length, index + 1, low, high, rest);
      }
      builder_.byte(from, static_cast<uint8_t>(digit), whole_[key]);
    }
  }

  void end_whole(StateId state, size_t length, bool on_low, bool on_high, int64_t remainder) {
    const bool above = !on_low || (low_.value.fraction.empty() && !low_.exclusive);
    const bool below = !on_high || !high_.value.fraction.empty() || !high_.exclusive;
    if (above && below && remainder == 0) builder_.empty(state, to_);
    if (integer_ || length >= kExactDigits) return;
    const size_t digits = std::min(kMaxFractionDigits, kExactDigits - length);
    const StateId point = builder_.add_state();
    builder_.byte(state, '.', point);
    add_fraction(point, 0, digits, on_low, on_high);
  }

  void add_fraction(StateId from, size_t index, size_t digits_left, bool on_low, bool on_high) {
    if (digits_left == 0 || builder_.is_full()) return;
    const char first = on_low ? digit_at(low_.value.fraction, index) : '0';
    const char last = on_high ? digit_at(high_.value.fraction, index) : '9';
    for (char digit = first; digit <= last; ++digit) {
      const bool low = on_low && digit == first, high = on_high && digit == last;
      const Key key{low || high ? index : 0, digits_left - 1, low, high, 0};
      const auto [it, is_new] = fraction_.try_emplace(key, 0);
      if (is_new) {
        const StateId state = builder_.add_state();
        it->second = state;
        const bool above = !low || (index + 1 >= low_.value.fraction.size() && !low_.exclusive);
        const bool below = !high || index + 1 < high_.value.fraction.size() || !high_.exclusive;
        if (above && below) builder_.empty(state, to_);
        add_fraction(state, index + 1, digits_left - 1, low, high);
      }
      builder_.byte(from, static_cast<uint8_t>(digit), fraction_[key]);
    }
  }

  using Key = std::tuple<size_t, size_t, bool, bool, int64_t>;
  GrammarBuilder& builder_;
  StateId to_;
  NumberBound low_, high_;
  bool integer_;
  int64_t multiple_;
  std::map<Key, StateId> whole_, fraction_;
};

// For integers bounds become whole: |x| <= 2.5 means at most 2, |x| >= 2.5 means above 2.
void make_whole(NumberBound& bound, bool is_low) {
  if (bound.value.fraction.empty()) return;
  bound.value.fraction.clear();
  bound.exclusive = is_low;
}

void add_magnitudes(GrammarBuilder& builder, StateId from, StateId to, Magnitudes range,
                    const NumberRange& number) {
  if (number.integer) {
    make_whole(range.low, true);
    make_whole(range.high, false);
  }
  const int order = compare_magnitude(range.low.value, range.high.value);
  if (order > 0 || (order == 0 && (range.low.exclusive || range.high.exclusive))) return;
  RangeWriter(builder, to, range, number.integer, number.multiple_of).add(from);
}

void digits(GrammarBuilder& builder, StateId from, StateId to, int max) {
  for (int i = 0; i < max; ++i) {
    const StateId next = builder.add_state();
    builder.bytes(from, '0', '9', next);
    builder.empty(next, to);
    from = next;
  }
}

void add_any_number(GrammarBuilder& builder, StateId from, StateId to) {
  const StateId whole = builder.add_state(), unsigned_part = builder.add_state();
  const StateId first = builder.add_state(), point = builder.add_state();
  const StateId mantissa = builder.add_state(), e = builder.add_state();
  builder.empty(from, unsigned_part);
  builder.byte(from, '-', unsigned_part);
  builder.byte(unsigned_part, '0', whole);
  builder.bytes(unsigned_part, '1', '9', first);
  builder.empty(first, whole);
  digits(builder, first, whole, static_cast<int>(kMaxWholeDigits) - 1);
  builder.empty(whole, mantissa);
  builder.byte(whole, '.', point);
  digits(builder, point, mantissa, 20);
  builder.empty(mantissa, to);
  const StateId sign = builder.add_state(), one = builder.add_state(), two = builder.add_state();
  builder.byte(mantissa, 'e', e);
  builder.byte(mantissa, 'E', e);
  builder.empty(e, sign);
  builder.byte(e, '+', sign);
  builder.byte(e, '-', sign);
  digits(builder, sign, to, 2);
  builder.byte(sign, '1', one);  // 1xx, 20x to 27x
  builder.byte(sign, '2', two);
  const StateId last = builder.add_state();
  builder.bytes(one, '0', '9', last);
  builder.bytes(two, '0', '7', last);
  builder.bytes(last, '0', '9', to);
}

Decimal whole_number(std::string digits, bool negative) {
  Decimal decimal;
  decimal.negative = negative;
  decimal.whole = std::move(digits);
  return decimal;
}

}  // namespace

Result<Decimal> to_decimal(const Json& number) {
  char text[400];
  const auto [end, ec] =
      number.is_int()
          ? std::to_chars(text, text + sizeof text, number.as_int())
          : std::to_chars(text, text + sizeof text, number.as_double(), std::chars_format::fixed);
  INVAR_CHECK(ec == std::errc(), "a number of more than 400 digits");
  std::string_view rest(text, static_cast<size_t>(end - text));
  Decimal decimal;
  decimal.negative = rest.starts_with('-');
  if (decimal.negative) rest.remove_prefix(1);
  const size_t point = rest.find('.');
  decimal.whole = std::string(rest.substr(0, point));
  if (point != std::string_view::npos) {
    decimal.fraction = std::string(rest.substr(point + 1));
    while (decimal.fraction.ends_with('0')) decimal.fraction.pop_back();
  }
  if (decimal.is_zero()) decimal.negative = false;
  if (decimal.whole.size() > kMaxWholeDigits || decimal.fraction.size() > kMaxWholeDigits)
    return invalid_argument("bounds of more than %zu digits on a side are not supported",
                            kMaxWholeDigits);
  return decimal;
}

int compare(const Decimal& a, const Decimal& b) {
  if (a.negative != b.negative) return a.negative ? -1 : 1;
  const int order = compare_magnitude(a, b);
  return a.negative ? -order : order;
}

void add_number(GrammarBuilder& builder, StateId from, StateId to, const NumberRange& range) {
  if (!range.integer && !range.low && !range.high) return add_any_number(builder, from, to);
  // Without a bound: the ends of int64, or 19 digits.
  NumberBound low{whole_number(range.integer ? "9223372036854775808" : "9999999999999999999", true),
                  false};
  NumberBound high{
      whole_number(range.integer ? "9223372036854775807" : "9999999999999999999", false), false};
  if (range.low && compare(range.low->value, low.value) >= 0) low = *range.low;
  if (range.high && compare(range.high->value, high.value) <= 0) high = *range.high;
  const NumberBound zero{Decimal{}, false}, above_zero{Decimal{}, true};
  if (!high.value.negative)
    add_magnitudes(builder, from, to, {low.value.negative ? zero : low, high}, range);
  if (low.value.negative) {
    const StateId minus = builder.add_state();
    builder.byte(from, '-', minus);
    add_magnitudes(builder, minus, to, {high.value.negative ? high : above_zero, low}, range);
  }
}

}  // namespace invar
