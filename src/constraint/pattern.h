// Patterns of a schema (ECMA-262 regular expressions, the subset that is regular), and the named
// formats, which are patterns of ours. The result is a deterministic automaton over the characters
// of the string, so matching is linear whatever the pattern.
#pragma once

#include <string_view>

#include "base/result.h"
#include "constraint/char_dfa.h"

namespace invar {

inline constexpr size_t kMaxPatternBytes = 4096;
inline constexpr int kMaxPatternRepeat = 1000;
inline constexpr int kMaxPatternDepth = 64;

// A pattern without anchors may match anywhere in the string. Errors name the construct, or the
// limit (kResourceExhausted).
Result<CharDfa> compile_pattern(std::string_view pattern);

// Error: no such format.
Result<CharDfa> compile_format(std::string_view name);

}  // namespace invar
