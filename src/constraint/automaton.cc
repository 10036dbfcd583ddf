// Frames made on demand.
#include "constraint/automaton.h"

#include <algorithm>

#include "base/check.h"
#include "base/keyed_hash.h"

namespace invar {
namespace {

uint64_t hash_of(const Frame& frame) {
  const HashSecret& secret = hash_secret();
  uint64_t hash =
      secret.seed ^ static_cast<uint64_t>(frame.kind) << 32 ^ static_cast<uint64_t>(frame.room);
  for (const uint64_t place : frame.places) hash = keyed_mix(hash ^ place, secret.multiplier);
  return hash;
}

}  // namespace

void Automaton::clear() {
  entries_.clear();
  by_hash_.clear();
  closed_.clear();
  last_place_.assign(grammar_.num_states(), 0);
  place_epoch_.assign(grammar_.num_states(), 0);
  epoch_ = 0;
  num_bytes_ = 0;
  ++generation_;
}

FrameId Automaton::intern(const Frame& frame) {
  const uint64_t hash = hash_of(frame);
  const auto [begin, end] = by_hash_.equal_range(hash);
  for (auto it = begin; it != end; ++it)
    if (*entries_[it->second].frame == frame) return it->second;
  Entry entry;
  entry.frame = std::make_shared<const Frame>(frame);
  entry.row.assign(static_cast<size_t>(grammar_.num_classes()), 0);
  const StateId first_state = Place::unpack(frame.places.front()).state;
  bool all_there = frame.kind == FrameKind::kString && first_state < kStringEnd;
  for (const uint64_t packed : frame.places) {
    const StateId state = Place::unpack(packed).state;
    entry.can_end |= grammar_.accepts(state);
    entry.can_go_on |= !grammar_.byte_edges(state).empty() || !grammar_.call_edges(state).empty();
    entry.is_free_text |= grammar_.is_free_text(state);
    all_there &= state == first_state;
  }
  if (all_there) entry.string_state = static_cast<StringState>(first_state);
  INVAR_CHECK(frame.kind == FrameKind::kRoot || !entry.can_end || !entry.can_go_on,
              "a rule that ends and goes on");
  entries_.push_back(std::move(entry));
  const FrameId id = static_cast<FrameId>(entries_.size() - 1);
  by_hash_.emplace(hash, id);
  num_bytes_ += sizeof(Entry) + sizeof(Frame) + 128 + frame.places.size() * 8 +
                static_cast<size_t>(grammar_.num_classes()) * 4;
  return id;
}

FrameId Automaton::first() {
  Frame frame;
  frame.room = std::min(grammar_.max_depth_needed(), kMaxOutputDepth);
  ++epoch_;
  add_place({grammar_.root(), grammar_.rule(grammar_.root()).start, 0, 0}, frame, frame.places);
  std::sort(frame.places.begin(), frame.places.end());
  INVAR_CHECK(!frame.places.empty(), "a grammar without a beginning");
  return intern(frame);
}

bool Automaton::may_stand(const Place& place, int room) const {
  const GrammarRule& rule = grammar_.rule(place.rule);
  if (grammar_.depth_needed(place.state) > room) return false;
  return rule.max == kUnbounded ||
         uint64_t{place.count} + grammar_.chars_needed(place.state) <= rule.max;
}

// The place and all that empty steps lead to; only those that decide something are written down.
void Automaton::add_place(Place first, const Frame& frame, std::vector<uint64_t>& places) {
  StateId pending[64];
  std::vector<StateId> more;  // beyond 64
  size_t num_pending = 0;
  const auto push = [&](StateId state) {
    if (num_pending < std::size(pending)) {
      pending[num_pending++] = state;
    } else {
      more.push_back(state);
    }
  };
  push(first.state);
  while (num_pending > 0 || !more.empty()) {
    Place place = first;
    if (!more.empty()) {
      place.state = more.back();
      more.pop_back();
    } else {
      place.state = pending[--num_pending];
    }
    if (place.state != first.state) place.spaces = 0;
    ++work_;
    if (!may_stand(place, frame.room)) continue;
    const bool decides =
        !grammar_.byte_edges(place.state).empty() || !grammar_.call_edges(place.state).empty();
    if (!decides && grammar_.accepts(place.state)) place.count = place.spaces = 0;
    // Two texts never lead to one state with different counts at once, save for free strings.
    const uint64_t packed = place.packed();
    if (place_epoch_[place.state] == epoch_ && last_place_[place.state] == packed) continue;
    place_epoch_[place.state] = epoch_;
    last_place_[place.state] = packed;
    if (decides || grammar_.accepts(place.state)) places.push_back(packed);
    for (const StateId target : grammar_.empty_edges(place.state)) push(target);
  }
}

void Automaton::take_byte(const Place& place, int symbol, const Frame& frame,
                          std::vector<uint64_t>& places) {
  const GrammarRule& rule = grammar_.rule(place.rule);
  for (const ByteEdge& edge : grammar_.byte_edges(place.state)) {
    ++work_;
    if (symbol < edge.low || symbol > edge.high) continue;
    Place next = place;
    next.state = edge.target;
    next.spaces = 0;
    if (edge.flags & kNeedsMin) {
      if (place.count < rule.min) continue;
    }
    if (edge.flags & kCounts) {
      if (rule.max == kUnbounded) {
        next.count = std::min(place.count + 1, rule.min);
      } else {
        if (place.count >= rule.max) continue;
        ++next.count;
      }
    }
    if (edge.flags & kCountsSpace) {
      if (place.spaces >= kMaxSpaces) continue;
      next.spaces = place.spaces + 1;
    }
    add_place(next, frame, places);
  }
}

Automaton::Step Automaton::find_step(FrameId id, int symbol_class, int room) {
  const std::shared_ptr<const Frame> here = entries_[id].frame;  // entries_ may grow
  const int symbol = grammar_.symbol_of(symbol_class);
  Frame stay, open;
  stay.kind = here->kind;
  stay.room = here->room;
  ++epoch_;
  for (const uint64_t packed : here->places)
    take_byte(Place::unpack(packed), symbol, stay, stay.places);
  for (const uint64_t packed : here->places) {
    for (const CallEdge& call : grammar_.call_edges(Place::unpack(packed).state)) {
      ++work_;
      if (grammar_.depth_needed(call.target) > here->room) continue;
      const GrammarRule& rule = grammar_.rule(call.rule);
      open.kind = rule.kind;
      if (rule.kind == FrameKind::kStructure) {
        if (room < 1) continue;
        open.room = std::min(room - 1, grammar_.max_depth_needed());
      }
      const Place start{call.rule, rule.start, 0, 0};
      if (may_stand(start, open.room)) take_byte(start, symbol, open, open.places);
    }
  }
  Step result{Step::kDead, 0};
  const auto finish = [&](Frame& frame) {
    std::sort(frame.places.begin(), frame.places.end());
    frame.places.erase(std::unique(frame.places.begin(), frame.places.end()), frame.places.end());
    return intern(frame);
  };
  INVAR_CHECK(stay.places.empty() || open.places.empty(), "a byte that both stays and opens");
  if (!stay.places.empty()) {
    result.frame = finish(stay);
    const bool ends = here->kind != FrameKind::kRoot && can_end(result.frame);
    result.kind = ends ? Step::kClose : Step::kStay;
  } else if (!open.places.empty()) {
    result = {Step::kOpen, finish(open)};
  }
  // At exactly this room a frame opened above differs from those opened with more.
  if (room != grammar_.max_depth_needed() || result.kind != Step::kOpen)
    entries_[id].row[static_cast<size_t>(symbol_class)] = (result.frame + 1) << 2 | result.kind;
  return result;
}

bool Automaton::close(FrameId below, FrameId ended, FrameId& next) {
  const uint64_t key = uint64_t{below} << 32 | ended;
  if (const auto found = closed_.find(key); found != closed_.end()) {
    next = found->second - 1;
    return found->second != 0;
  }
  const std::shared_ptr<const Frame> here = entries_[below].frame;
  const std::shared_ptr<const Frame> done = entries_[ended].frame;
  Frame frame;
  frame.kind = here->kind;
  frame.room = here->room;
  ++epoch_;
  for (const uint64_t packed : here->places) {
    const Place place = Place::unpack(packed);
    for (const CallEdge& call : grammar_.call_edges(place.state)) {
      ++work_;
      // Places are ordered by rule first.
      const auto at = std::lower_bound(done->places.begin(), done->places.end(),
                                       Place{call.rule, 0, 0, 0}.packed());
      if (at == done->places.end() || Place::unpack(*at).rule != call.rule) continue;
      add_place({place.rule, call.target, place.count, 0}, frame, frame.places);
    }
  }
  uint32_t entry = 0;
  if (!frame.places.empty()) {
    std::sort(frame.places.begin(), frame.places.end());
    frame.places.erase(std::unique(frame.places.begin(), frame.places.end()), frame.places.end());
    entry = intern(frame) + 1;
  }
  closed_.emplace(key, entry);
  num_bytes_ += 48;
  next = entry - 1;
  return entry != 0;
}

FrameId Automaton::without_far_counts(FrameId id, uint32_t length) {
  const std::shared_ptr<const Frame> here = entries_[id].frame;
  Frame frame = *here;
  for (uint64_t& packed : frame.places) {
    Place place = Place::unpack(packed);
    const GrammarRule& rule = grammar_.rule(place.rule);
    // What a pattern still needs counts against the maximum, too.
    const uint64_t margin = uint64_t{length} + grammar_.max_chars_needed();
    const bool far_from_max = rule.max == kUnbounded || place.count + margin < rule.max;
    if (!far_from_max) continue;
    if (place.count >= rule.min) {
      if (rule.max == kUnbounded || rule.min + margin < rule.max) place.count = rule.min;
    } else if (rule.min - place.count > length) {
      place.count = 0;
    }
    packed = place.packed();
  }
  std::sort(frame.places.begin(), frame.places.end());
  frame.places.erase(std::unique(frame.places.begin(), frame.places.end()), frame.places.end());
  return frame == *here ? id : intern(frame);
}

}  // namespace invar
