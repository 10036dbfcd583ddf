// The known pre-tokenizer patterns (specs/tokenizers.md section 5) as hand-written matchers:
// linear, without a regex engine. Each matcher covers all text: a match begins wherever the last
// one ended.
#pragma once

#include <cstddef>
#include <string_view>

namespace invar {

// The end of the match that begins at `pos`; always > pos. pos < text.size().
using MatchFunction = size_t (*)(std::string_view text, size_t pos);

struct SplitPattern {
  std::string_view name;   // as in tokenizer.ggml.pre
  std::string_view regex;  // exactly as it stands in tokenizer.json files
  MatchFunction match;
};

const SplitPattern* split_pattern_by_name(std::string_view name);    // nullptr: unknown
const SplitPattern* split_pattern_by_regex(std::string_view regex);  // nullptr: unknown

}  // namespace invar
