// Masks: a walk over the vocabulary's tree beside the automaton. What bounds the time is the number
// of nodes visited; long walks are kept by frame, and the inside of strings is walked once per
// vocabulary (token_trie.h). What a walk finds below its frame depends on the text before and is
// done anew each time: these are few tokens, such as '"}' or '],'.
#include "constraint/constraint.h"

#include <algorithm>

#include "base/check.h"

namespace invar {
namespace {

constexpr size_t kMaxAutomatonBytes = 32u << 20;
constexpr size_t kMaxPartialBytes = 16u << 20;
constexpr size_t kLongWalk = 512;            // nodes; shorter ones are not worth keeping
constexpr int64_t kMaxMaskWork = 4'000'000;  // places; about a quarter of a second

void set_bit(std::span<uint64_t> bits, uint32_t id) { bits[id >> 6] |= uint64_t{1} << (id & 63); }

}  // namespace

CompiledConstraint::CompiledConstraint(Grammar grammar, std::shared_ptr<const TokenTrie> trie,
                                       std::vector<std::string> warnings)
    : grammar_(std::move(grammar)),
      trie_(std::move(trie)),
      warnings_(std::move(warnings)),
      automaton_(grammar_),
      positions_(trie_->max_token_bytes() + 1) {}

void CompiledConstraint::begin(FrameStack& stack) const {
  stack.ids = {automaton_.first()};
  stack.frames = {automaton_.frame(stack.ids[0])};
  stack.depth = 0;
  stack.generation = automaton_.generation();
}

// Makes room when the caches are full, and ids valid when they were void.
void CompiledConstraint::revive(FrameStack& stack) const {
  if (automaton_.num_bytes() > kMaxAutomatonBytes) {
    automaton_.clear();
    partials_.clear();
    partial_by_key_.clear();
    partial_bytes_ = 0;
  }
  if (stack.generation == automaton_.generation()) return;
  for (size_t i = 0; i < stack.ids.size(); ++i) stack.ids[i] = automaton_.intern(*stack.frames[i]);
  stack.generation = automaton_.generation();
}

bool CompiledConstraint::take(FrameStack& stack, int symbol) const {
  const Automaton::Step step =
      automaton_.step(stack.ids.back(), symbol, kMaxOutputDepth - stack.depth);
  FrameId next = step.frame;
  switch (step.kind) {
    case Automaton::Step::kDead:
      return false;
    case Automaton::Step::kStay:
      break;
    case Automaton::Step::kOpen:
      stack.ids.push_back(next);
      stack.frames.push_back(automaton_.frame(next));
      if (stack.frames.back()->kind == FrameKind::kStructure) ++stack.depth;
      return true;
    case Automaton::Step::kClose:
      if (stack.frames.back()->kind == FrameKind::kStructure) --stack.depth;
      stack.ids.pop_back();
      stack.frames.pop_back();
      if (!automaton_.close(stack.ids.back(), step.frame, next)) return false;
      break;
  }
  stack.ids.back() = next;
  stack.frames.back() = automaton_.frame(next);
  return true;
}

// One symbol of a walk. kBelow: the stack's top frame was closed and may_go_below is false; `ended`
// says how.
CompiledConstraint::Move CompiledConstraint::move(const FrameStack& stack, Position& position,
                                                  int symbol, bool may_go_below,
                                                  FrameId& ended) const {
  const Automaton::Step step = automaton_.step(position.top, symbol, position.room);
  switch (step.kind) {
    case Automaton::Step::kDead:
      return Move::kDead;
    case Automaton::Step::kStay:
      position.top = step.frame;
      return Move::kAlive;
    case Automaton::Step::kOpen:
      if (automaton_.frame(step.frame)->kind == FrameKind::kStructure) --position.room;
      links_.push_back({position.top, position.link});
      position.link = position.num_links = static_cast<uint32_t>(links_.size());
      position.top = step.frame;
      return Move::kAlive;
    case Automaton::Step::kClose:
      break;
  }
  FrameId below;
  if (position.link == 0 && !may_go_below) {
    ended = step.frame;
    return Move::kBelow;
  }
  if (automaton_.frame(position.top)->kind == FrameKind::kStructure) ++position.room;
  if (position.link != 0) {
    below = links_[position.link - 1].frame;
    position.link = links_[position.link - 1].below;
  } else {
    below = stack.ids[--position.base];
  }
  return automaton_.close(below, step.frame, position.top) ? Move::kAlive : Move::kDead;
}

// All tokens that end at nodes [begin, end), a part of the tree whose first node follows `start`.
// Without `closes` the walk goes down into the stack. Returns the nodes visited.
size_t CompiledConstraint::walk(const FrameStack& stack, uint32_t begin, uint32_t end,
                                const Position& start, std::span<uint64_t> bits,
                                std::vector<Partial::Close>* closes) const {
  if (begin >= end) return 0;
  const std::span<const TokenTrie::Node> nodes = trie_->nodes();
  size_t visited = 0;
  positions_[nodes[begin].depth] = start;
  for (uint32_t i = begin; i < end;) {
    const TokenTrie::Node& node = nodes[i];
    ++visited;
    Position position = positions_[node.depth];
    links_.resize(position.num_links);  // those of brothers are done with
    FrameId ended = 0;
    const Move moved = move(stack, position, node.byte, closes == nullptr, ended);
    if (moved == Move::kAlive) {
      position.num_links = static_cast<uint32_t>(links_.size());
      if (node.depth + size_t{1} < positions_.size()) positions_[node.depth + size_t{1}] = position;
      for (const uint32_t id : trie_->tokens_at(i)) set_bit(bits, id);
      ++i;
      continue;
    }
    if (moved == Move::kBelow) closes->push_back({i, ended});
    i = node.end;
    if (automaton_.work() > kMaxMaskWork) break;
  }
  return visited;
}

// The walk has closed the stack's top frame at `node`: what follows there.
void CompiledConstraint::leave(const FrameStack& stack, Position position, uint32_t node,
                               FrameId ended, std::span<uint64_t> bits) const {
  if (!automaton_.close(stack.ids[position.base], ended, position.top)) return;
  for (const uint32_t id : trie_->tokens_at(node)) set_bit(bits, id);
  walk(stack, node + 1, trie_->nodes()[node].end, position, bits, nullptr);
}

// Inside free strings. Several may stand side by side with other limits; they are at the same
// character, so that only counts differ.
void CompiledConstraint::mask_string(const FrameStack& stack, std::span<uint64_t> bits) const {
  const Frame& frame = *stack.frames.back();
  const TokenTrie::StringWalk& walk_inside =
      trie_->string_walk(automaton_.string_state(stack.ids.back()));
  uint32_t left = 0;  // characters that the longest of them may still have
  for (const uint64_t packed : frame.places) {
    const Place place = Place::unpack(packed);
    const uint32_t max = grammar_.rule(place.rule).max;
    left = std::max(left, max == kUnbounded ? kUnbounded : max - place.count);
  }
  const auto& tokens = walk_inside.tokens;
  const auto too_long = std::partition_point(tokens.begin(), tokens.end(),
                                             [&](const auto& t) { return t.chars <= left; });
  if (too_long - tokens.begin() < tokens.end() - too_long) {
    for (auto it = tokens.begin(); it != too_long; ++it) set_bit(bits, it->id);
  } else {
    std::copy(walk_inside.bits.begin(), walk_inside.bits.end(), bits.begin());
    for (auto it = too_long; it != tokens.end(); ++it)
      bits[it->id >> 6] &= ~(uint64_t{1} << (it->id & 63));
  }
  Position below;
  below.base = static_cast<uint32_t>(stack.ids.size()) - 2;
  below.room = kMaxOutputDepth - stack.depth;
  Frame ended;
  ended.kind = FrameKind::kString;
  FrameId ended_id = 0;
  uint32_t chars = kUnbounded;
  for (const TokenTrie::StringWalk::Close& close : walk_inside.closes) {
    if (close.chars > left) break;
    if (close.chars != chars) {  // which of the strings may end after so many
      chars = close.chars;
      ended.places.clear();
      for (const uint64_t packed : frame.places) {
        const Place place = Place::unpack(packed);
        const GrammarRule& rule = grammar_.rule(place.rule);
        const uint64_t count = uint64_t{place.count} + chars;
        if (count >= rule.min && (rule.max == kUnbounded || count <= rule.max))
          ended.places.push_back(Place{place.rule, kStringEnd, 0, 0}.packed());
      }
      ended.places.erase(std::unique(ended.places.begin(), ended.places.end()), ended.places.end());
      if (!ended.places.empty()) ended_id = automaton_.intern(ended);
    }
    if (!ended.places.empty()) leave(stack, below, close.node, ended_id, bits);
  }
}

void CompiledConstraint::mask_frame(const FrameStack& stack, std::span<uint64_t> bits) const {
  const FrameId top = stack.ids.back();
  const FrameId frame =
      automaton_.without_far_counts(top, static_cast<uint32_t>(trie_->max_token_bytes()));
  const int room =
      std::min(kMaxOutputDepth - stack.depth, grammar_.max_depth_needed() + 1 + trie_->max_opens());
  const uint64_t key = uint64_t{frame} << 8 | static_cast<uint64_t>(room);
  const bool is_bottom = stack.ids.size() == 1;
  const Partial* partial = nullptr;
  Partial made;
  if (const auto found = partial_by_key_.find(key); found != partial_by_key_.end()) {
    partials_.splice(partials_.begin(), partials_, found->second);
    partial = &partials_.front();
  } else {
    made.bits.assign(trie_->num_mask_words(), 0);
    made.key = key;
    Position start;
    start.top = frame;
    start.room = room;
    const size_t visited = walk(stack, 0, static_cast<uint32_t>(trie_->nodes().size()), start,
                                made.bits, &made.closes);
    partial = &made;
    if (visited > kLongWalk && automaton_.work() <= kMaxMaskWork) {
      partials_.push_front(std::move(made));
      partial = &partials_.front();
      partial_by_key_[key] = partials_.begin();
      const auto bytes_of = [](const Partial& p) {
        return p.bits.size() * 8 + p.closes.size() * sizeof(Partial::Close) + 128;
      };
      partial_bytes_ += bytes_of(partials_.front());
      while (partial_bytes_ > kMaxPartialBytes && partials_.size() > 1) {
        partial_bytes_ -= bytes_of(partials_.back());
        partial_by_key_.erase(partials_.back().key);
        partials_.pop_back();
      }
    }
  }
  for (size_t i = 0; i < bits.size(); ++i) bits[i] |= partial->bits[i];
  INVAR_CHECK(!is_bottom || partial->closes.empty(), "the bottom frame was closed");
  if (is_bottom) return;
  Position below;
  below.base = static_cast<uint32_t>(stack.ids.size()) - 2;
  below.room =
      kMaxOutputDepth - stack.depth + (stack.frames.back()->kind == FrameKind::kStructure ? 1 : 0);
  for (const Partial::Close& close : partial->closes)
    leave(stack, below, close.node, close.ended, bits);
}

Result<void> CompiledConstraint::mask(FrameStack& stack, std::span<uint64_t> bits) const {
  revive(stack);
  automaton_.reset_work();
  const FrameId top = stack.ids.back();
  if (automaton_.can_go_on(top)) {
    if (automaton_.string_state(top) != kNumStringStates) {
      mask_string(stack, bits);
    } else {
      mask_frame(stack, bits);
    }
  }
  if (automaton_.is_free_text(top))
    for (const int32_t id : trie_->special_ids()) set_bit(bits, static_cast<uint32_t>(id));
  for (const auto& [id, symbol] : grammar_.markers()) {
    const uint64_t bit = uint64_t{1} << (id & 63);
    uint64_t& word = bits[static_cast<size_t>(id) >> 6];
    const bool alive =
        automaton_.step(top, symbol, kMaxOutputDepth - stack.depth).kind != Automaton::Step::kDead;
    word = alive ? word | bit : word & ~bit;
  }
  if (stack.ids.size() == 1 && automaton_.can_end(top))
    for (const int32_t id : trie_->end_ids()) set_bit(bits, static_cast<uint32_t>(id));
  cache_bytes_ = automaton_.num_bytes() + partial_bytes_;
  if (automaton_.work() > kMaxMaskWork)
    return resource_exhausted(
        "schema too complex: more than %ld alternatives stand side by side in this reply",
        long{kMaxMaskWork});
  return {};
}

// ---- Constraint

Constraint::Constraint(std::shared_ptr<const CompiledConstraint> compiled)
    : compiled_(std::move(compiled)) {
  const std::lock_guard lock(compiled_->mutex_);
  compiled_->begin(stack_);
}

Result<void> Constraint::mask(std::span<uint64_t> bits) {
  INVAR_CHECK(bits.size() == num_mask_words(), "%zu words of a mask", bits.size());
  std::fill(bits.begin(), bits.end(), 0);
  const TokenTrie& trie = compiled_->trie();
  if (ended_) {
    for (const int32_t id : trie.end_ids()) set_bit(bits, static_cast<uint32_t>(id));
    return {};
  }
  const std::lock_guard lock(compiled_->mutex_);
  return compiled_->mask(stack_, bits);
}

bool Constraint::accept(int32_t token_id) {
  const TokenTrie& trie = compiled_->trie();
  if (token_id < 0 || token_id >= trie.vocab_size()) return false;
  if (trie.is_end(token_id)) {
    if (!ended_ && !is_complete()) return false;
    ended_ = true;
    return true;
  }
  if (ended_) return false;
  const std::lock_guard lock(compiled_->mutex_);
  compiled_->revive(stack_);
  for (const auto& [id, symbol] : compiled_->grammar_.markers())
    if (id == token_id) return compiled_->take(stack_, symbol);
  const std::string& bytes = trie.token_bytes(token_id);
  if (bytes.empty()) {
    const auto& specials = trie.special_ids();
    return compiled_->automaton_.is_free_text(stack_.ids.back()) &&
           std::find(specials.begin(), specials.end(), token_id) != specials.end();
  }
  FrameStack before = stack_;
  for (const char c : bytes) {
    if (compiled_->take(stack_, static_cast<uint8_t>(c))) continue;
    stack_ = std::move(before);
    return false;
  }
  return true;
}

bool Constraint::is_complete() const {
  if (stack_.ids.size() != 1) return false;
  const Frame& frame = *stack_.frames[0];
  return std::any_of(frame.places.begin(), frame.places.end(), [&](uint64_t packed) {
    return compiled_->grammar_.accepts(Place::unpack(packed).state);
  });
}

bool Constraint::is_finished() const {
  if (ended_) return true;
  if (!is_complete()) return false;
  const Grammar& grammar = compiled_->grammar_;
  for (const uint64_t packed : stack_.frames[0]->places) {
    const StateId state = Place::unpack(packed).state;
    if (!grammar.byte_edges(state).empty() || !grammar.call_edges(state).empty()) return false;
  }
  return true;
}

const std::vector<std::string>& constraint_warnings(const CompiledConstraint& constraint) {
  return constraint.warnings();
}

}  // namespace invar
