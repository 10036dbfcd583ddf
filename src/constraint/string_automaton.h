// The automaton of a JSON string's inside: UTF-8 and escapes, surrogates only in pairs. The same in
// every grammar and always its first states, so that one walk over the vocabulary serves all
// strings of all schemas (token_trie.h).
#pragma once

#include <cstdint>
#include <span>

namespace invar {

enum StringState : uint8_t {
  kStringBody,   // between characters
  kStringTail1,  // one continuation byte to come
  kStringTail2,
  kStringTail3,
  kStringE0,  // lead bytes that narrow the second byte
  kStringED,
  kStringF0,
  kStringF4,
  kStringEscape,  // after the backslash
  kStringHex4,    // four hex digits to come
  kStringHex3,
  kStringHex2,
  kStringHex1,
  kStringHexD,  // after \ud: a character below the surrogates, or a high surrogate
  kStringHigh2,
  kStringHigh1,
  kStringPairEscape,  // a low surrogate must follow
  kStringPairU,
  kStringPairD,
  kStringPairHex,
  kStringEnd,   // after the closing quote
  kStringOpen,  // before the opening one
  kNumStringStates
};

struct StringEdge {
  StringState from;
  uint8_t low, high;
  StringState to;
  bool counts;  // begins a character
};
std::span<const StringEdge> string_edges();

// kNumStringStates: no edge.
StringState next_string_state(StringState state, uint8_t byte, bool& counts);

}  // namespace invar
