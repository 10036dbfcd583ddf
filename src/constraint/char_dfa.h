// CharDfa: a deterministic automaton over code points, for strings that must match a pattern, a
// format or several of them at once. Deterministic so that a string has one state however the
// pattern was written: what would need too many states is refused when the schema is compiled, and
// nothing can grow while a reply is made. Trimmed: from every state the end can be reached.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "constraint/char_set.h"
#include "constraint/grammar.h"

namespace invar {

inline constexpr uint32_t kMaxDfaStates = 4096;
inline constexpr int64_t kMaxDfaWork = 4'000'000;

// A nondeterministic automaton: what a pattern is first translated to.
struct CharNfa {
  struct Edge {
    uint32_t set, target;
  };
  struct State {
    std::vector<Edge> edges;
    std::vector<uint32_t> empties;
  };
  std::vector<State> states;
  std::vector<CharSet> sets;
  uint32_t start = 0, end = 0;
};

struct CharDfa {
  static constexpr uint32_t kDead = 0xFFFFFFFF;

  // Code points from bounds[i] up to bounds[i + 1] share class i; the last ends at U+10FFFF.
  std::vector<uint32_t> bounds;
  std::vector<std::vector<uint32_t>> next;  // [state][class]
  std::vector<bool> accepts;
  uint32_t start = 0;  // kDead: matches nothing

  bool is_empty() const { return start == kDead; }
};

// Errors name the limit.
Result<CharDfa> determinise(const CharNfa& nfa);
Result<CharDfa> intersect(const CharDfa& a, const CharDfa& b);
// Strings of at least `min_length` code points.
Result<CharDfa> at_least(const CharDfa& dfa, uint32_t min_length);
// Every string that does not hold `text` anywhere.
CharDfa without(std::string_view ascii_text);

// Code points of the shortest string; kUnbounded: there is none.
uint32_t shortest_length(const CharDfa& dfa);

enum class StringEncoding { kJson, kRaw };
// The automaton as bytes from `from`; `ends` gets the states in which the string may end. Each
// character counts (kCounts), and states know how many must still come, so that a maximum set on
// the rule never cuts a string short of its end.
void add_to_grammar(const CharDfa& dfa, StringEncoding encoding, GrammarBuilder& builder,
                    StateId from, std::vector<StateId>& ends);

}  // namespace invar
