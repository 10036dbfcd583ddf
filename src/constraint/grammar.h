// Grammar: what a constraint compiles to, a pushdown automaton over bytes. Rules call one another
// (a string, an object, an array, a key); each rule is a small automaton whose edges are ranges of
// bytes, calls and empty steps. Built by GrammarBuilder, run by Automaton (automaton.h).
//
// Two properties make it quick and exact, and every builder keeps them:
// - A call begins with a byte that tells it from all else that may stand there ('"', '{', '['), and
//   the called rule's last byte ends it. So a byte either stays in a frame, or opens one, or closes
//   one, for all alternatives at once, and one stack serves them all.
// - From every state that is kept, the end can be reached: within the limit of depth and with bytes
//   that the vocabulary can spell. So a mask is never empty, and a reply cannot get stuck.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"

namespace invar {

using StateId = uint32_t;
using RuleId = uint32_t;

inline constexpr uint32_t kMaxGrammarStates = 100'000;
inline constexpr uint32_t kMaxGrammarRules = 100'000;
inline constexpr int kMaxOutputDepth = 64;  // objects and arrays inside one another
inline constexpr uint32_t kUnbounded = 0xFFFFFFFF;
inline constexpr uint32_t kMaxSpaces = 64;  // after a line feed

// Symbols: the bytes, then special tokens that a grammar names (markers such as <|python_tag|>).
inline constexpr int kMaxMarkers = 8;
inline constexpr int kNumSymbols = 256 + kMaxMarkers;

enum class FrameKind : uint8_t { kRoot, kString, kStructure };

enum EdgeFlags : uint8_t {
  kPlain = 0,
  kCounts = 1,       // one more item or character of the rule, refused beyond its maximum
  kNeedsMin = 2,     // only when the rule's minimum is reached
  kCountsSpace = 4,  // one more space of an indentation
};

struct ByteEdge {
  uint16_t low, high;
  uint8_t flags;
  StateId target;
};
struct CallEdge {
  RuleId rule;
  StateId target;
};
struct GrammarRule {
  StateId start = 0;
  FrameKind kind = FrameKind::kRoot;
  uint32_t min = 0, max = kUnbounded;  // of what its kCounts edges count
};

class Grammar {
 public:
  std::span<const ByteEdge> byte_edges(StateId state) const {
    return {bytes_.data() + begins_[state].byte, begins_[state + 1].byte - begins_[state].byte};
  }
  std::span<const CallEdge> call_edges(StateId state) const {
    return {calls_.data() + begins_[state].call, begins_[state + 1].call - begins_[state].call};
  }
  std::span<const StateId> empty_edges(StateId state) const {
    return {empties_.data() + begins_[state].empty,
            begins_[state + 1].empty - begins_[state].empty};
  }
  bool accepts(StateId state) const { return facts_[state].accepts; }
  bool is_free_text(StateId state) const { return facts_[state].free_text; }
  // Characters that must still follow before the rule can end.
  uint32_t chars_needed(StateId state) const { return facts_[state].chars_needed; }
  // How many frames of structure must still be opened, one in another, before the end.
  int depth_needed(StateId state) const { return facts_[state].depth_needed; }
  int max_depth_needed() const { return max_depth_needed_; }
  uint32_t max_chars_needed() const { return max_chars_needed_; }

  const GrammarRule& rule(RuleId rule) const { return rules_[rule]; }
  RuleId root() const { return root_; }
  size_t num_states() const { return facts_.size(); }
  size_t num_bytes() const {
    return bytes_.size() * sizeof(ByteEdge) + calls_.size() * sizeof(CallEdge) +
           empties_.size() * sizeof(StateId) + begins_.size() * sizeof(Begin) +
           facts_.size() * sizeof(Facts) + rules_.size() * sizeof(GrammarRule);
  }

  // Bytes that no edge tells apart share a class.
  int class_of(int symbol) const { return classes_[static_cast<size_t>(symbol)]; }
  int num_classes() const { return static_cast<int>(class_symbols_.size()); }
  int symbol_of(int symbol_class) const {
    return class_symbols_[static_cast<size_t>(symbol_class)];
  }
  // Special tokens that are symbols: (token id, symbol).
  const std::vector<std::pair<int32_t, int>>& markers() const { return markers_; }

 private:
  friend class GrammarBuilder;
  struct Begin {
    uint32_t byte, call, empty;
  };
  struct Facts {
    bool accepts = false, free_text = false;
    uint8_t depth_needed = 255;
    uint32_t chars_needed = 0;
  };
  std::vector<ByteEdge> bytes_;
  std::vector<CallEdge> calls_;
  std::vector<StateId> empties_;
  std::vector<Begin> begins_;
  std::vector<Facts> facts_;
  std::vector<GrammarRule> rules_;
  RuleId root_ = 0;
  int max_depth_needed_ = 0;
  uint32_t max_chars_needed_ = 0;
  std::array<uint16_t, kNumSymbols> classes_ = {};
  std::vector<int> class_symbols_;
  std::vector<std::pair<int32_t, int>> markers_;
};

class GrammarBuilder {
 public:
  GrammarBuilder();  // has the states of free strings already (string_automaton.h)

  StateId add_state();
  RuleId add_rule(FrameKind kind);  // with a start state of its own
  RuleId add_rule(FrameKind kind, StateId start, uint32_t min, uint32_t max);
  StateId start(RuleId rule) const { return rules_[rule].start; }
  void set_counts(RuleId rule, uint32_t min, uint32_t max);

  void byte(StateId from, uint8_t byte, StateId to, uint8_t flags = kPlain);
  void bytes(StateId from, int low, int high, StateId to, uint8_t flags = kPlain);
  void call(StateId from, RuleId rule, StateId to);
  void empty(StateId from, StateId to);
  void literal(StateId from, std::string_view text, StateId to);
  // Nothing, one space, or a line feed and at most 64 spaces.
  void spaces(StateId from, StateId to);
  // Any bytes until `text` first appears. Returns the states of the search: state i has seen the
  // first i bytes of the text.
  std::vector<StateId> search(StateId from, std::string_view text, StateId to);
  // A special token as one symbol; false: there is no room for one more.
  bool marker(StateId from, int32_t token_id, StateId to);
  void accept(StateId state) { facts_[state].accepts = true; }
  void free_text(StateId state) { facts_[state].free_text = true; }
  void need_chars(StateId state, uint32_t count) { facts_[state].chars_needed = count; }

  // Checked by whoever adds in a loop; finish() reports it.
  bool is_full() const { return is_full_; }
  size_t num_states() const { return facts_.size(); }

  // Removes what cannot be ended. Errors: too many states; nothing is left.
  Result<Grammar> finish(RuleId root, const std::bitset<256>& spellable);

 private:
  struct Edges {
    std::vector<ByteEdge> bytes;
    std::vector<CallEdge> calls;
    std::vector<StateId> empties;
  };
  void find_depths(Grammar& grammar) const;
  void number_classes(Grammar& grammar) const;

  std::vector<Edges> edges_;
  std::vector<Grammar::Facts> facts_;
  std::vector<GrammarRule> rules_;
  std::vector<std::pair<int32_t, int>> markers_;
  bool is_full_ = false;
};

}  // namespace invar
