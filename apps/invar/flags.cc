#include "flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <numeric>

#include "base/result.h"

namespace invar::cli {
namespace {

template <typename T>
bool parse_all(std::string_view text, T& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size();
}

CLI::Validator whole_number(FlagSet::Range range) {
  return CLI::Validator(
      [range](std::string& text) -> std::string {
        int64_t value = 0;
        if (parse_number(text, value) && value >= range.low && value <= range.high) return {};
        return format("'%s' is not a whole number from %lld to %lld", text.c_str(),
                      static_cast<long long>(range.low), static_cast<long long>(range.high));
      },
      "");
}

CLI::Validator real_number(FlagSet::RealRange range) {
  return CLI::Validator(
      [range](std::string& text) -> std::string {
        double value = 0;
        if (parse_number(text, value) && value <= range.high &&
            (range.low_open ? value > range.low : value >= range.low))
          return {};
        return format("'%s' is not a number %s %g to %g", text.c_str(),
                      range.low_open ? "above" : "from", range.low, range.high);
      },
      "");
}

}  // namespace

bool parse_number(std::string_view text, int64_t& value) { return parse_all(text, value); }
bool parse_number(std::string_view text, double& value) {
  return parse_all(text, value) && std::isfinite(value);
}

// What all flags have in common.
CLI::Option* FlagSet::settle(CLI::Option* option, bool repeats) const {
  option->group(group_);
  if (!for_launchers_) return option;
  if (!repeats) option->take_last();
  std::string name = "INVAR_";
  for (const char c : option->get_lnames().front())
    name += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
  return option->envname(name);
}

void FlagSet::argument(const std::string& name, std::string& target, const std::string& help,
                       bool optional) {
  // Not "required" for CLI11, whose complaint would hide a mistyped flag; main.cc checks it.
  app_.add_option(name, target, help)->option_text(optional ? "[" + name + "]" : name);
}

void FlagSet::text(const std::string& flag, const std::string& value, std::string& target,
                   const std::string& help, const std::string& shown_default) {
  settle(app_.add_option(flag, target, help))->type_name(value)->default_str(shown_default);
}

void FlagSet::text(const std::string& flag, const std::string& value,
                   std::optional<std::string>& target, const std::string& help) {
  settle(app_.add_option(flag, target, help))->type_name(value);
}

void FlagSet::texts(const std::string& flag, const std::string& value,
                    std::vector<std::string>& target, const std::string& help,
                    const std::function<std::string(const std::string&)>& check) {
  CLI::Option* option =
      settle(app_.add_option(flag, target, help)->allow_extra_args(false), true)->type_name(value);
  if (check) option->check(CLI::Validator([check](std::string& text) { return check(text); }, ""));
}

void FlagSet::choice(const std::string& flag, const std::vector<std::string>& words,
                     std::string& target, const std::string& help,
                     const std::string& shown_default) {
  const auto check = [words](std::string& text) -> std::string {
    if (std::find(words.begin(), words.end(), text) != words.end()) return {};
    const std::string guess = nearest(text, words);
    return "'" + text + "' is none of " + CLI::detail::join(words, ", ") +
           (guess.empty() ? "" : "; did you mean " + guess + "?");
  };
  settle(app_.add_option(flag, target, help))
      ->check(CLI::Validator(check, ""))
      ->type_name(CLI::detail::join(words, "|"))
      ->default_str(shown_default);
}

void FlagSet::whole(const std::string& flag, const std::string& value, Range range, int64_t& target,
                    const std::string& help, const std::string& shown_default) {
  settle(app_.add_option(flag, target, help))
      ->check(whole_number(range))
      ->type_name(value)
      ->default_str(shown_default);
}

void FlagSet::whole(const std::string& flag, const std::string& value, Range range,
                    std::optional<int64_t>& target, const std::string& help) {
  settle(app_.add_option(flag, target, help))->check(whole_number(range))->type_name(value);
}

void FlagSet::wholes(const std::string& flag, const std::string& value, Range range,
                     std::vector<int64_t>& target, const std::string& help,
                     const std::string& shown_default) {
  settle(app_.add_option(flag, target, help)->delimiter(',')->allow_extra_args(false))
      ->check(whole_number(range))
      ->type_name(value)
      ->default_str(shown_default);
}

void FlagSet::real(const std::string& flag, const std::string& value, RealRange range,
                   std::optional<double>& target, const std::string& help) {
  settle(app_.add_option(flag, target, help))->check(real_number(range))->type_name(value);
}

void FlagSet::toggle(const std::string& flag, bool& target, const std::string& help) {
  settle(app_.add_flag(flag, target, help));
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
