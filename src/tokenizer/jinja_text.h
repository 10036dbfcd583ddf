// What Python's str methods do, on strings that know where their bytes come from. Shared by methods
// and filters.
#pragma once

#include "tokenizer/jinja_value.h"

namespace invar::jinja {

// What all the digits of a double cost: printf computes up to a thousand of them.
inline constexpr int64_t kDecimalSteps = 400;

inline constexpr size_t kNotFound = std::string::npos;

// Byte of the first (last) `part` in `text` from byte `from` on; linear in the text.
size_t find_text(std::string_view text, std::string_view part, size_t from = 0);
size_t rfind_text(Budget& budget, std::string_view text, std::string_view part);

// chars: a set of characters; null: white space.
Str strip(const Str& str, const Str* chars, bool left, bool right);
Str replace_text(Budget& budget, const Str& str, const Str& from, const Str& to, int64_t max_count);
// separator null: runs of white space. max_splits < 0: all.
Value split(Budget& budget, const Str& str, const Str* separator, int64_t max_splits);
Value rsplit(Budget& budget, const Str& str, const Str* separator, int64_t max_splits);
List split_lines(Budget& budget, const Str& str, bool keep_ends = false);
Value join(Budget& budget, const Str& separator, const List& items);
Str repeat(Budget& budget, const Str& str, int64_t count);

// f(code point, whether it begins a word or the text, as `title` and `capitalize` need it).
enum class Case { kUpper, kLower, kCapitalize, kTitle, kTitleFilter, kSwap };
Str change_case(Budget& budget, const Str& str, Case how);

// "%s" % args, and "{}".format(args).
Value percent_format(Budget& budget, const Str& pattern, const Value& args);
Value brace_format(Budget& budget, const Str& pattern, const List& positional,
                   const std::vector<std::pair<std::string, Value>>& named);

// Number of `text` as Python's int() and float() read it; empty when it is none.
std::optional<int64_t> parse_int(std::string_view text, int base);
std::optional<double> parse_float(std::string_view text);

}  // namespace invar::jinja
