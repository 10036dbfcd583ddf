// PreTokenizer: cuts a piece of normalized text into words; merges never cross a word. A list of
// steps, each cutting what the one before it gave. Mapping bytes to the printable alphabet is not
// done here: byte-level vocabularies are kept as bytes.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "tokenizer/regex.h"
#include "tokenizer/split_patterns.h"

namespace invar {

class PreTokenizer {
 public:
  using WordSink = std::function<void(std::string_view word)>;

  // tokenizer.json's "pre_tokenizer", or null. Errors name the field.
  static Result<PreTokenizer> parse(const Json& json);

  void add_pattern(const SplitPattern& pattern);  // behavior Isolated
  void add_digits();                              // each numeric character alone

  // Calls word() for each word in order. at_text_start: the piece begins the whole text.
  void split(std::string_view piece, bool at_text_start, const WordSink& word) const {
    run(0, piece, at_text_start, word);
  }

  // The vocabulary is written in the byte alphabet (a ByteLevel step).
  bool byte_level = false;
  // Name of the pattern or patterns, for `invar info`.
  std::string description() const;

 private:
  enum class Kind { kSplit, kDigitRuns, kByteLevelPrefix, kMetaspace };
  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  enum class Prepend { kNever, kFirst, kAlways };
  struct Step {
    Kind kind = Kind::kSplit;
    // kSplit: exactly one of these finds matches.
    const SplitPattern* pattern = nullptr;
    bool single_digits = false;
    std::string literal;
    std::optional<Regex> regex;
    Behavior behavior = Behavior::kIsolated;
    bool invert = false;
    // kMetaspace
    std::string replacement;
    Prepend prepend = Prepend::kNever;
    bool split = true;
  };

  Result<void> parse_step(const Json& json, const std::string& field, int depth);
  Result<void> parse_split(const Json& json, const std::string& field);
  Result<void> parse_metaspace(const Json& json, const std::string& field);

  void run(size_t step_index, std::string_view piece, bool at_text_start,
           const WordSink& word) const;
  void run_split(const Step& step, size_t step_index, std::string_view piece, bool at_text_start,
                 const WordSink& word) const;
  static bool find(const Step& step, std::string_view piece, const Regex::Subject* subject,
                   size_t from, size_t& begin, size_t& end);

  std::vector<Step> steps_;
};

}  // namespace invar
