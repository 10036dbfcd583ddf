// Automaton: runs a grammar. A position in the text is a stack of frames; a frame is the set of
// places in the grammar where the text may stand, for all alternatives at once. Frames are made
// when they are first reached and kept, with a row of next frames by class of byte, so that a step
// is one look-up: a deterministic pushdown automaton, written down as far as texts have led.
//
// What is kept is a cache with a limit of bytes: nothing that callers see depends on it.
// Not thread safe (CompiledConstraint holds the lock).
#pragma once

#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

#include "constraint/grammar.h"
#include "constraint/string_automaton.h"

namespace invar {

// Where the text may stand: rule, state, what the rule has counted, and spaces of an indentation.
struct Place {
  RuleId rule;
  StateId state;
  uint32_t count;
  uint32_t spaces;

  uint64_t packed() const {
    return uint64_t{rule} << 41 | uint64_t{state} << 24 | uint64_t{count} << 7 | spaces;
  }
  static Place unpack(uint64_t bits) {
    return {static_cast<RuleId>(bits >> 41), static_cast<StateId>(bits >> 24 & 0x1FFFF),
            static_cast<uint32_t>(bits >> 7 & 0x1FFFF), static_cast<uint32_t>(bits & 0x7F)};
  }
};

struct Frame {
  std::vector<uint64_t> places;  // packed, ascending
  FrameKind kind = FrameKind::kRoot;
  // How many more frames of structure may be opened above this one, as far as it matters: at most
  // Grammar::max_depth_needed().
  int room = 0;

  bool operator==(const Frame&) const = default;
};
using FrameId = uint32_t;

class Automaton {
 public:
  explicit Automaton(const Grammar& grammar) : grammar_(grammar) { clear(); }

  struct Step {
    enum Kind : uint8_t { kDead, kStay, kOpen, kClose } kind;
    FrameId frame;  // the next top; kClose: what ended, for close()
  };
  // `room`: frames of structure that may still be opened above `frame`.
  Step step(FrameId frame, int symbol, int room) {
    const int symbol_class = grammar_.class_of(symbol);
    const uint32_t known = entries_[frame].row[static_cast<size_t>(symbol_class)];
    if (known != 0 && room != grammar_.max_depth_needed())
      return {static_cast<Step::Kind>(known & 3), (known >> 2) - 1};
    return find_step(frame, symbol_class, room);
  }
  // The frame below after `ended` was closed; false: nothing there goes on.
  bool close(FrameId below, FrameId ended, FrameId& next);

  FrameId first();  // the bottom, before any text
  FrameId intern(const Frame& frame);
  const std::shared_ptr<const Frame>& frame(FrameId id) const { return entries_[id].frame; }
  bool can_end(FrameId id) const { return entries_[id].can_end; }  // a place accepts
  bool can_go_on(FrameId id) const { return entries_[id].can_go_on; }
  bool is_free_text(FrameId id) const { return entries_[id].is_free_text; }
  // All places are inside a free string, at this state of it; else kNumStringStates.
  StringState string_state(FrameId id) const { return entries_[id].string_state; }

  // A frame that behaves as this one does for texts of up to `length` bytes, and is the same for
  // all counts that are far from their limits.
  FrameId without_far_counts(FrameId id, uint32_t length);

  // Places looked at since the last reset; steps that were known cost nothing.
  int64_t work() const { return work_; }
  void reset_work() { work_ = 0; }
  size_t num_bytes() const { return num_bytes_; }
  void clear();                                        // forgets all frames: ids are void
  uint64_t generation() const { return generation_; }  // counts clear()

 private:
  struct Entry {
    std::shared_ptr<const Frame> frame;
    std::vector<uint32_t> row;  // by class: 0 unknown, else (frame + 1) << 2 | kind
    bool can_end = false, can_go_on = false, is_free_text = false;
    StringState string_state = kNumStringStates;
  };
  Step find_step(FrameId id, int symbol_class, int room);
  void add_place(Place place, const Frame& frame, std::vector<uint64_t>& places);
  void take_byte(const Place& place, int symbol, const Frame& frame, std::vector<uint64_t>& places);
  bool may_stand(const Place& place, int room) const;

  const Grammar& grammar_;
  std::vector<Entry> entries_;
  std::unordered_multimap<uint64_t, FrameId> by_hash_;
  std::unordered_map<uint64_t, uint32_t> closed_;  // (below, ended) -> next + 1, or 0
  std::vector<uint64_t> last_place_;               // by state, with epoch
  std::vector<uint32_t> place_epoch_;
  uint32_t epoch_ = 0;
  int64_t work_ = 0;
  size_t num_bytes_ = 0;
  uint64_t generation_ = 0;
};

}  // namespace invar
