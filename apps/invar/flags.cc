#include "flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/result.h"
#include "words.h"

namespace invar::cli {
namespace {

template <typename T>
bool parse_all(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

FlagSet::Check whole_number(FlagSet::Range range) {
  return [range](const std::string& text) -> std::string {
    int64_t value = 0;
    if (parse_number(text, value) && value >= range.low && value <= range.high) return {};
    return format("'%s' is not a whole number from %lld to %lld", text.c_str(),
                  static_cast<long long>(range.low), static_cast<long long>(range.high));
  };
}

FlagSet::Check real_number(FlagSet::RealRange range) {
  return [range](const std::string& text) -> std::string {
    double value = 0;
    if (parse_number(text, value) && value <= range.high &&
        (range.low_open ? value > range.low : value >= range.low))
      return {};
    return format("'%s' is not a number %s %g to %g", text.c_str(),
                  range.low_open ? "above" : "from", range.low, range.high);
  };
}

}  // namespace

bool is_one_of(const std::string& text, const std::vector<std::string>& words) {
  double number = 0, other = 0;
  for (const std::string& word : words)
    if (text == word ||
        (parse_number(text, number) && parse_number(word, other) && number == other))
      return true;
  return false;
}

std::optional<bool> parse_switch(const std::string& text) {
  for (const char* word : {"on", "true", "1", "yes", "enabled"})
    if (text == word) return true;
  for (const char* word : {"off", "false", "0", "no", "disabled"})
    if (text == word) return false;
  return std::nullopt;
}

FlagSet::Check one_of(const std::vector<std::string>& words) {
  return [words](const std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    const std::string guess = nearest(text, words);
    return "'" + text + "' is none of " + CLI::detail::join(words, ", ") +
           (guess.empty() ? "" : "; did you mean " + guess + "?");
  };
}

using Arity = FlagRecord::Arity;

bool parse_number(std::string_view text, int64_t& value) { return parse_all(text, value); }
bool parse_number(std::string_view text, double& value) {
  return parse_all(text, value) && std::isfinite(value);
}

void set_names(const std::string& flag, FlagRecord& record) {
  bool is_negative = false;
  for (const std::string& name : split(flag, ',')) {
    if (name.starts_with("--no-") && !record.names.empty()) is_negative = true;
    (is_negative                     ? record.negatives
     : name.compare(0, 2, "--") == 0 ? record.names
                                     : record.shorts)
        .push_back(name);
  }
}

std::string variable_of(const std::string& name) {
  std::string variable = "INVAR_";
  for (const char c : name.substr(name.find_first_not_of('-')))
    variable += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return variable;
}

FlagRecord& FlagSet::record(const std::string& flag, Arity arity, const std::string& type,
                            const std::string& value, const std::string& help,
                            const std::string& shown_default, const Check& check) {
  FlagRecord record;
  set_names(flag, record);
  record.arity = arity;
  record.type = type;
  record.value = value;
  record.shown_default = shown_default;
  record.group = group_;
  record.help = help;
  record.check = check;
  return records_.emplace_back(std::move(record));
}

// The names of the newest record, as the library shall know them. launch_arguments.h writes primary
// names only.
std::string FlagSet::library_names() const {
  const FlagRecord& record = records_.back();
  return for_launchers_ ? record.names.front() : CLI::detail::join(record.names, ",");
}

// What all flags have in common.
CLI::Option* FlagSet::settle(CLI::Option* option, const FlagRecord& record) const {
  if (record.check) {
    const Check check = record.check;
    option->check(CLI::Validator([check](std::string& text) { return check(text); }, ""));
  }
  return option->group(record.group)->type_name(record.value)->default_str(record.shown_default);
}

void FlagSet::argument(const std::string& name, std::string& target, const std::string& help,
                       bool optional) {
  // Not "required" for CLI11, whose complaint would hide a mistyped flag; main.cc checks it.
  app_.add_option(name, target, help)->option_text(optional ? "[" + name + "]" : name);
}

void FlagSet::text(const std::string& flag, const std::string& value, std::string& target,
                   const std::string& help, const std::string& shown_default) {
  checked(flag, value, target, {}, help, shown_default);
}

void FlagSet::text(const std::string& flag, const std::string& value,
                   std::optional<std::string>& target, const std::string& help) {
  const FlagRecord& added = record(flag, Arity::kOne, "string", value, help, "", {});
  settle(app_.add_option(library_names(), target, help), added);
}

void FlagSet::checked(const std::string& flag, const std::string& value, std::string& target,
                      const Check& check, const std::string& help,
                      const std::string& shown_default) {
  const FlagRecord& added = record(flag, Arity::kOne, "string", value, help, shown_default, check);
  settle(app_.add_option(library_names(), target, help), added);
}

void FlagSet::texts(const std::string& flag, const std::string& value,
                    std::vector<std::string>& target, const std::string& help, const Check& check) {
  const FlagRecord& added = record(flag, Arity::kOne, "string", value, help, "", check);
  settle(app_.add_option(library_names(), target, help)->allow_extra_args(false), added);
}

void FlagSet::choice(const std::string& flag, const std::vector<std::string>& words,
                     std::string& target, const std::string& help,
                     const std::string& shown_default) {
  const FlagRecord& added = record(flag, Arity::kOne, "choice", CLI::detail::join(words, "|"), help,
                                   shown_default, one_of(words));
  settle(app_.add_option(library_names(), target, help), added);
}

void FlagSet::whole(const std::string& flag, const std::string& value, Range range, int64_t& target,
                    const std::string& help, const std::string& shown_default) {
  const FlagRecord& added =
      record(flag, Arity::kOne, "integer", value, help, shown_default, whole_number(range));
  settle(app_.add_option(library_names(), target, help), added);
}

void FlagSet::whole(const std::string& flag, const std::string& value, Range range,
                    std::optional<int64_t>& target, const std::string& help) {
  const FlagRecord& added =
      record(flag, Arity::kOne, "integer", value, help, "", whole_number(range));
  settle(app_.add_option(library_names(), target, help), added);
}

void FlagSet::wholes(const std::string& flag, const std::string& value, Range range,
                     std::vector<int64_t>& target, const std::string& help,
                     const std::string& shown_default) {
  const FlagRecord& added =
      record(flag, Arity::kOne, "integer", value, help, shown_default, whole_number(range));
  settle(app_.add_option(library_names(), target, help)->delimiter(',')->allow_extra_args(false),
         added);
}

void FlagSet::real(const std::string& flag, const std::string& value, RealRange range,
                   std::optional<double>& target, const std::string& help) {
  const FlagRecord& added =
      record(flag, Arity::kOne, "number", value, help, "", real_number(range));
  settle(app_.add_option(library_names(), target, help), added);
}

void FlagSet::toggle(const std::string& flag, bool& target, const std::string& help) {
  const FlagRecord& added = record(flag, Arity::kNone, "boolean", "", help, target ? "on" : "", {});
  app_.add_flag(library_names(), target, help)->group(added.group);
}

void FlagSet::toggle(const std::string& flag, std::optional<bool>& target,
                     const std::string& help) {
  const FlagRecord& added = record(flag, Arity::kNone, "boolean", "", help, "", {});
  // Not add_flag(), which takes an optional for a count and sets it. "=false" comes as -1.
  const auto set = [&target](int64_t count) { target = count > 0; };
  app_.add_flag_function(library_names(), set, help)->group(added.group);
}

void FlagSet::foreign(FlagRecord record) {
  record.has_target = false;
  records_.push_back(std::move(record));
}

std::string FlagSet::first_given(const std::string& group) const {
  for (const FlagRecord& record : records_)
    if (record.group == group && record.has_target &&
        app_.get_option(record.names.front())->count() > 0)
      return record.names.front();
  return {};
}

void FlagSet::footer(const std::string& text) { app_.footer(text); }

std::string nearest(std::string_view word, const std::vector<std::string>& known) {
  std::string best;
  // More than a third wrong is another word, not a slip.
  size_t best_distance = std::max<size_t>(2, word.size() / 3) + 1;
  for (const std::string& candidate : known) {
    std::vector<size_t> row(candidate.size() + 1);  // edit distances to prefixes of candidate
    std::iota(row.begin(), row.end(), size_t{0});
    for (size_t i = 0; i < word.size(); ++i) {
      size_t diagonal = row[0];
      row[0] = i + 1;
      for (size_t j = 0; j < candidate.size(); ++j) {
        const size_t change = diagonal + (word[i] == candidate[j] ? 0 : 1);
        diagonal = row[j + 1];
        row[j + 1] = std::min({change, row[j] + 1, row[j + 1] + 1});
      }
    }
    if (row.back() < best_distance) {
      best = candidate;
      best_distance = row.back();
    }
  }
  return best;
}

}  // namespace invar::cli
