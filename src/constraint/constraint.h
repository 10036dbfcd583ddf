// Constraints: what a reply may be, as masks over the vocabulary. A CompiledConstraint is made once
// per schema (compile.h) and shared; a Constraint is one reply's place in it.
//
// The mask of a place is the same whatever else runs: it depends on the grammar and on the text so
// far. Masks allow exactly the tokens whose bytes the grammar can go on with (parts of characters
// too), and end tokens exactly where the text is complete. Because every state of a grammar leads
// to an end, a mask is never empty.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "constraint/automaton.h"
#include "constraint/grammar.h"
#include "constraint/token_trie.h"

namespace invar {

// The frames of one text, from the bottom up.
struct FrameStack {
  std::vector<FrameId> ids;
  std::vector<std::shared_ptr<const Frame>> frames;  // survive when ids become void
  int depth = 0;                                     // frames of structure
  uint64_t generation = 0;
};

class CompiledConstraint {
 public:
  CompiledConstraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                     std::vector<std::string> warnings);

  const TokenTrie& trie() const { return *trie_; }
  // What was relaxed, one line each.
  const std::vector<std::string>& warnings() const { return warnings_; }
  size_t num_states() const { return grammar_.num_states(); }
  // Memory held, which grows with use. Waits for nobody.
  size_t num_bytes() const { return grammar_.num_bytes() + cache_bytes_; }

 private:
  friend class Constraint;
  // Tokens allowed without a look at the frames below, and where the walk went below.
  struct Partial {
    struct Close {
      uint32_t node;
      FrameId ended;
    };
    std::vector<uint64_t> bits;
    std::vector<Close> closes;
    uint64_t key;
  };
  // A position inside a walk: frames that the walk opened are links, those before it the stack's.
  struct Position {
    FrameId top = 0;
    uint32_t link = 0;  // 0: none opened
    uint32_t num_links = 0;
    uint32_t base = 0;  // index of the stack's frame that is top or below all links
    int room = 0;
  };
  struct Link {
    FrameId frame;
    uint32_t below;
  };
  enum class Move { kDead, kAlive, kBelow };

  void begin(FrameStack& stack) const;
  void revive(FrameStack& stack) const;
  bool take(FrameStack& stack, int symbol) const;
  Move move(const FrameStack& stack, Position& position, int symbol, bool may_go_below,
            FrameId& ended) const;
  void leave(const FrameStack& stack, Position position, uint32_t node, FrameId ended,
             std::span<uint64_t> bits) const;
  size_t walk(const FrameStack& stack, uint32_t begin, uint32_t end, const Position& start,
              std::span<uint64_t> bits, std::vector<Partial::Close>* closes) const;
  Result<void> mask(FrameStack& stack, std::span<uint64_t> bits) const;
  void mask_string(const FrameStack& stack, std::span<uint64_t> bits) const;
  void mask_frame(const FrameStack& stack, std::span<uint64_t> bits) const;

  const Grammar grammar_;
  const std::shared_ptr<const TokenTrie> trie_;
  const std::vector<std::string> warnings_;

  // Caches and scratch; masks do not depend on them.
  mutable std::mutex mutex_;
  mutable Automaton automaton_;
  mutable std::list<Partial> partials_;  // most recently used first
  mutable std::unordered_map<uint64_t, std::list<Partial>::iterator> partial_by_key_;
  mutable size_t partial_bytes_ = 0;
  mutable std::atomic<size_t> cache_bytes_ = 0;  // of all these, as the last mask left them
  mutable std::vector<Position> positions_;      // by depth of the walk
  mutable std::vector<Link> links_;
};

class Constraint {
 public:
  explicit Constraint(std::shared_ptr<const CompiledConstraint> compiled);
  // A copy goes on by itself (drafts, several replies).
  Constraint(const Constraint&) = default;
  Constraint& operator=(const Constraint&) = default;

  size_t num_mask_words() const { return compiled_->trie().num_mask_words(); }
  // Bit id: token id may come next. Error: the schema needs too much work for one mask.
  Result<void> mask(std::span<uint64_t> bits);
  // False, and nothing changes: the token is not allowed here.
  bool accept(int32_t token_id);
  bool is_complete() const;  // the text so far may be the whole
  bool is_finished() const;  // and nothing but an end token can follow

 private:
  std::shared_ptr<const CompiledConstraint> compiled_;
  FrameStack stack_;
  bool ended_ = false;  // an end token was accepted
};

}  // namespace invar
