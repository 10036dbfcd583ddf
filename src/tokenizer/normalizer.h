// Normalizer: what a tokenizer does to text before it is cut into words (NFC, Replace, Prepend).
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/regex.h"

namespace invar {

class Normalizer {
 public:
  // tokenizer.json's "normalizer", or null. Errors name the field.
  static Result<Normalizer> parse(const Json& json);

  void add_nfc() { steps_.push_back({Kind::kNfc, "", "", std::nullopt}); }
  void add_replace(std::string from, std::string to) {
    steps_.push_back({Kind::kReplace, std::move(from), std::move(to), std::nullopt});
  }
  void add_prepend(std::string text) {
    steps_.push_back({Kind::kPrepend, "", std::move(text), std::nullopt});
  }

  bool empty() const { return steps_.empty(); }
  // The normalized text; `storage` holds it when it differs from `text`.
  std::string_view apply(std::string_view text, std::string& storage) const;

 private:
  enum class Kind { kNfc, kReplace, kReplaceRegex, kPrepend };
  struct Step {
    Kind kind;
    std::string from, to;
    std::optional<Regex> regex;
  };
  Result<void> parse_step(const Json& json, const std::string& field, int depth);
  Result<void> add_parsed_replace(const Json& json, const std::string& field);
  // Steps multiply: what one byte may become at most is bounded when they are read.
  Result<void> check_growth(const std::string& field, size_t from_bytes, size_t to_bytes);

  std::vector<Step> steps_;
  size_t growth_ = 1;
};

// Every `from` (not empty) as `to`; linear.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace invar
