// Subset construction and products over classes of code points, and the translation of code points
// to the bytes of UTF-8 and JSON escapes.
#include "constraint/char_dfa.h"

#include <algorithm>
#include <deque>
#include <map>

#include "base/check.h"

namespace invar {

CharSet CharSet::all() { return of({{0, 0xD7FF}, {0xE000, kMaxCodePoint}}); }

CharSet CharSet::of(std::initializer_list<Range> ranges) {
  CharSet set;
  for (const Range& range : ranges) set.add(range.low, range.high);
  set.normalise();
  return set;
}

void CharSet::add(const CharSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
}

void CharSet::normalise() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const Range& a, const Range& b) { return a.low < b.low; });
  std::vector<Range> merged;
  const auto append = [&](uint32_t low, uint32_t high) {
    if (low > high) return;
    if (!merged.empty() && low <= merged.back().high + 1)
      merged.back().high = std::max(merged.back().high, high);
    else
      merged.push_back({low, high});
  };
  for (const Range& range : ranges_) {  // around the surrogates
    append(range.low, std::min(range.high, 0xD7FFu));
    append(std::max(range.low, 0xE000u), range.high);
  }
  ranges_ = std::move(merged);
}

CharSet CharSet::complement() const {
  CharSet result;
  uint32_t next = 0;
  for (const Range& range : ranges_) {
    if (range.low > next) result.add(next, range.low - 1);
    next = range.high + 1;
  }
  if (next <= kMaxCodePoint) result.add(next, kMaxCodePoint);
  result.normalise();
  return result;
}

namespace {

Error too_many_states() {
  return resource_exhausted("it needs more than %u states as a deterministic automaton",
                            kMaxDfaStates);
}

// Drops states from which no end can be reached.
void trim(CharDfa& dfa) {
  const size_t num_states = dfa.next.size();
  std::vector<std::vector<uint32_t>> sources(num_states);
  for (uint32_t state = 0; state < num_states; ++state)
    for (const uint32_t target : dfa.next[state])
      if (target != CharDfa::kDead) sources[target].push_back(state);
  std::vector<bool> alive = dfa.accepts;
  std::vector<uint32_t> found;
  for (uint32_t state = 0; state < num_states; ++state)
    if (alive[state]) found.push_back(state);
  while (!found.empty()) {
    const uint32_t state = found.back();
    found.pop_back();
    for (const uint32_t source : sources[state])
      if (!alive[source]) {
        alive[source] = true;
        found.push_back(source);
      }
  }
  for (auto& row : dfa.next)
    for (uint32_t& target : row)
      if (target != CharDfa::kDead && !alive[target]) target = CharDfa::kDead;
  if (dfa.start != CharDfa::kDead && !alive[dfa.start]) dfa.start = CharDfa::kDead;
}

std::vector<uint32_t> merged_bounds(std::vector<uint32_t> bounds) {
  bounds.push_back(0);
  bounds.push_back(0xD800);  // no class mixes surrogates and characters
  bounds.push_back(0xE000);
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  if (bounds.back() > CharSet::kMaxCodePoint) bounds.pop_back();
  return bounds;
}

// The class of `bounds` that holds each class of `finer`.
std::vector<uint32_t> coarser_class(const std::vector<uint32_t>& bounds,
                                    const std::vector<uint32_t>& finer) {
  std::vector<uint32_t> result;
  for (const uint32_t low : finer)
    result.push_back(static_cast<uint32_t>(std::upper_bound(bounds.begin(), bounds.end(), low) -
                                           bounds.begin() - 1));
  return result;
}

// Breadth first over states that are keys; `expand(key, row)` fills a row of keys' numbers with
// number(key).
template <typename Key, typename Accepts, typename Expand>
Result<CharDfa> explore(std::vector<uint32_t> bounds, Key start, const Accepts& accepts,
                        const Expand& expand) {
  CharDfa dfa;
  dfa.bounds = std::move(bounds);
  std::map<Key, uint32_t> numbers;
  std::deque<const Key*> queue;  // keys of a map stay where they are
  bool full = false;
  const auto number = [&](const Key& key) {
    const auto [it, is_new] = numbers.try_emplace(key, static_cast<uint32_t>(numbers.size()));
    if (is_new) queue.push_back(&it->first);
    full |= numbers.size() > kMaxDfaStates;
    return it->second;
  };
  number(start);
  while (!queue.empty()) {
    const Key& key = *queue.front();
    queue.pop_front();
    dfa.accepts.push_back(accepts(key));
    dfa.next.emplace_back(dfa.bounds.size(), CharDfa::kDead);
    if (!expand(key, dfa.next.back(), number) || full) return too_many_states();
  }
  trim(dfa);
  return dfa;
}

// States from which every string leads to the end: what stands beside one decides nothing. They are
// what follows a pattern without an anchor at its end.
std::vector<bool> open_states(const CharNfa& nfa) {
  const size_t num_states = nfa.states.size();
  std::vector<std::vector<uint32_t>> sources(num_states);
  for (uint32_t state = 0; state < num_states; ++state)
    for (const uint32_t target : nfa.states[state].empties) sources[target].push_back(state);
  std::vector<bool> ends(num_states), open(num_states);  // ends: without another character
  std::vector<uint32_t> found = {nfa.end};
  ends[nfa.end] = true;
  while (!found.empty()) {
    const uint32_t state = found.back();
    found.pop_back();
    for (const uint32_t source : sources[state])
      if (!ends[source]) {
        ends[source] = true;
        found.push_back(source);
      }
  }
  const auto all = CharSet::all().ranges();
  for (uint32_t state = 0; state < num_states; ++state)
    for (const CharNfa::Edge& edge : nfa.states[state].edges) {
      const auto& back = nfa.states[edge.target].empties;
      open[state] = open[state] || (ends[state] && nfa.sets[edge.set].ranges() == all &&
                                    std::find(back.begin(), back.end(), state) != back.end());
    }
  return open;
}

}  // namespace

Result<CharDfa> determinise(const CharNfa& nfa) {
  std::vector<uint32_t> bounds;
  for (const CharSet& set : nfa.sets)
    for (const CharSet::Range& range : set.ranges()) {
      bounds.push_back(range.low);
      bounds.push_back(range.high + 1);
    }
  bounds = merged_bounds(std::move(bounds));
  if (bounds.size() > 4096)
    return resource_exhausted("its character classes have more than %d ranges", 2048);
  // Classes of each set, as ranges.
  std::vector<std::vector<std::pair<uint32_t, uint32_t>>> classes(nfa.sets.size());
  const auto class_at = [&](uint32_t low) {
    return static_cast<uint32_t>(std::lower_bound(bounds.begin(), bounds.end(), low) -
                                 bounds.begin());
  };
  for (size_t i = 0; i < nfa.sets.size(); ++i)
    for (const CharSet::Range& range : nfa.sets[i].ranges())
      classes[i].emplace_back(class_at(range.low), class_at(range.high + 1));

  const std::vector<bool> open = open_states(nfa);
  using Key = std::vector<uint32_t>;  // closed, ascending
  int64_t work = 0;
  std::vector<uint32_t> mark(nfa.states.size(), 0);
  uint32_t epoch = 0;
  const auto close = [&](Key states) {
    ++epoch;
    Key closed;
    for (const uint32_t state : states) mark[state] = epoch;
    while (!states.empty()) {
      const uint32_t state = states.back();
      states.pop_back();
      ++work;
      // Only what decides something is part of the key.
      if (!nfa.states[state].edges.empty() || state == nfa.end) closed.push_back(state);
      for (const uint32_t target : nfa.states[state].empties)
        if (mark[target] != epoch) {
          mark[target] = epoch;
          states.push_back(target);
        }
    }
    std::sort(closed.begin(), closed.end());
    const auto found =
        std::find_if(closed.begin(), closed.end(), [&](uint32_t state) { return open[state]; });
    if (found != closed.end()) closed = {std::min(*found, nfa.end), std::max(*found, nfa.end)};
    return closed;
  };
  return explore(
      bounds, close({nfa.start}),
      [&](const Key& key) { return std::binary_search(key.begin(), key.end(), nfa.end); },
      [&](const Key& key, std::vector<uint32_t>& row, const auto& number) {
        std::vector<Key> targets(bounds.size());
        for (const uint32_t state : key)
          for (const CharNfa::Edge& edge : nfa.states[state].edges)
            for (const auto& [low, high] : classes[edge.set])
              for (uint32_t c = low; c < high; ++c) {
                ++work;
                if (targets[c].empty() || targets[c].back() != edge.target)
                  targets[c].push_back(edge.target);
              }
        Key last_targets;
        uint32_t last = CharDfa::kDead;
        for (size_t c = 0; c < targets.size(); ++c) {
          if (targets[c].empty()) continue;
          if (targets[c] != last_targets) {
            last_targets = targets[c];
            std::sort(targets[c].begin(), targets[c].end());
            targets[c].erase(std::unique(targets[c].begin(), targets[c].end()), targets[c].end());
            last = number(close(std::move(targets[c])));
          }
          row[c] = last;
        }
        return work <= kMaxDfaWork;
      });
}

Result<CharDfa> intersect(const CharDfa& a, const CharDfa& b) {
  std::vector<uint32_t> bounds = a.bounds;
  bounds.insert(bounds.end(), b.bounds.begin(), b.bounds.end());
  bounds = merged_bounds(std::move(bounds));
  const std::vector<uint32_t> in_a = coarser_class(a.bounds, bounds);
  const std::vector<uint32_t> in_b = coarser_class(b.bounds, bounds);
  if (a.is_empty()) return a;
  if (b.is_empty()) return b;
  using Key = std::pair<uint32_t, uint32_t>;
  return explore(
      bounds, Key{a.start, b.start},
      [&](const Key& key) { return a.accepts[key.first] && b.accepts[key.second]; },
      [&](const Key& key, std::vector<uint32_t>& row, const auto& number) {
        for (size_t c = 0; c < row.size(); ++c) {
          const uint32_t next_a = a.next[key.first][in_a[c]], next_b = b.next[key.second][in_b[c]];
          if (next_a != CharDfa::kDead && next_b != CharDfa::kDead)
            row[c] = number({next_a, next_b});
        }
        return true;
      });
}

Result<CharDfa> at_least(const CharDfa& dfa, uint32_t min_length) {
  if (min_length == 0 || dfa.is_empty()) return dfa;
  using Key = std::pair<uint32_t, uint32_t>;  // state, characters seen up to min_length
  return explore(
      dfa.bounds, Key{dfa.start, 0},
      [&](const Key& key) { return dfa.accepts[key.first] && key.second == min_length; },
      [&](const Key& key, std::vector<uint32_t>& row, const auto& number) {
        for (size_t c = 0; c < row.size(); ++c) {
          const uint32_t next = dfa.next[key.first][c];
          if (next != CharDfa::kDead) row[c] = number({next, std::min(key.second + 1, min_length)});
        }
        return true;
      });
}

CharDfa without(std::string_view text) {
  const size_t n = text.size();
  CharDfa dfa;
  std::vector<uint32_t> bounds;
  for (const char c : text) {
    bounds.push_back(static_cast<uint8_t>(c));
    bounds.push_back(static_cast<uint8_t>(c) + 1u);
  }
  dfa.bounds = merged_bounds(std::move(bounds));
  // State i: the last i characters begin the text.
  for (size_t i = 0; i < n; ++i) {
    dfa.accepts.push_back(true);
    dfa.next.emplace_back(dfa.bounds.size(), CharDfa::kDead);
    for (size_t c = 0; c < dfa.bounds.size(); ++c) {
      const uint32_t low = dfa.bounds[c];
      if (low == 0xD800) continue;
      std::string seen = std::string(text.substr(0, i));
      seen += low < 0x80 ? static_cast<char>(low) : '\x80';  // 0x80: in no text that we forbid
      size_t keep = std::min(seen.size(), n);
      while (keep > 0 && !text.starts_with(std::string_view(seen).substr(seen.size() - keep)))
        --keep;
      if (keep < n) dfa.next.back()[c] = static_cast<uint32_t>(keep);
    }
  }
  return dfa;
}

// ---- Bytes

namespace {

using ByteRange = std::pair<uint8_t, uint8_t>;

// The continuation bytes of ranges of code points share their states: those of a target depend
// only on what is still to come.
class ByteWriter {
 public:
  ByteWriter(GrammarBuilder& builder, StringEncoding encoding)
      : builder_(builder), encoding_(encoding) {}

  // Code points from `low` to `high`; `needed`: characters that must follow `to`.
  void add(StateId from, uint32_t low, uint32_t high, StateId to, uint32_t needed) {
    needed_ = needed;
    if (encoding_ == StringEncoding::kRaw) return add_utf8(from, low, high, to);
    for (uint32_t c = low; c <= high && c < 0x20; ++c) escapes_[c] = {to, needed};
    for (const uint32_t c : {uint32_t{'"'}, uint32_t{'\\'}})
      if (low <= c && c <= high) escapes_[c] = {to, needed};
    for (const auto& [first, last] :
         {std::pair{0x20u, 0x21u}, {0x23u, 0x5Bu}, {0x5Du, CharSet::kMaxCodePoint}})
      add_utf8(from, std::max(low, first), std::min(high, last), to);
  }

  // After all ranges of `from`: its escapes. States whose escapes lead to the same places share
  // them.
  void finish(StateId from) {
    if (escapes_.empty()) return;
    const auto [it, is_new] = escape_states_.try_emplace(escapes_, 0);
    if (is_new) it->second = add_escapes();
    builder_.byte(from, '\\', it->second, kCounts);
    escapes_.clear();
  }

 private:
  struct Target {
    StateId state;
    uint32_t needed;
    auto operator<=>(const Target&) const = default;
  };

  StateId new_state(uint32_t needed) {
    const StateId state = builder_.add_state();
    builder_.need_chars(state, needed);
    return state;
  }

  // After the backslash. One spelling each: the short escape where there is one, else \u00xx.
  StateId add_escapes() {
    static constexpr std::string_view kChars = "\"\\\b\f\n\r\t", kLetters = "\"\\bfnrt";
    uint32_t least = kUnbounded, least_hex[2] = {kUnbounded, kUnbounded};
    for (const auto& [c, target] : escapes_) {
      least = std::min(least, target.needed);
      if (kChars.find(static_cast<char>(c)) == std::string_view::npos)
        least_hex[c >> 4] = std::min(least_hex[c >> 4], target.needed);
    }
    const StateId escape = new_state(least);
    const uint32_t hex_needed = std::min(least_hex[0], least_hex[1]);
    StateId last_digit[2] = {0, 0};
    if (hex_needed != kUnbounded) {
      StateId at = escape;
      for (const char c : {'u', '0', '0'}) {
        const StateId next = new_state(hex_needed);
        builder_.byte(at, static_cast<uint8_t>(c), next);
        at = next;
      }
      for (uint8_t i = 0; i < 2; ++i) {
        if (least_hex[i] == kUnbounded) continue;
        last_digit[i] = new_state(least_hex[i]);
        builder_.byte(at, static_cast<uint8_t>('0' + i), last_digit[i]);
      }
    }
    for (const auto& [c, target] : escapes_) {
      const size_t at = kChars.find(static_cast<char>(c));
      if (at != std::string_view::npos) {
        builder_.byte(escape, static_cast<uint8_t>(kLetters[at]), target.state);
      } else {
        static constexpr char kHex[] = "0123456789abcdef";
        builder_.byte(last_digit[c >> 4], static_cast<uint8_t>(kHex[c & 15]), target.state);
      }
    }
    return escape;
  }

  // State from which one of `tail` (ranges of following bytes) leads to `to`.
  StateId tail_state(std::span<const ByteRange> tail, StateId to) {
    if (tail.empty()) return to;
    const auto key = std::pair(to, std::vector<ByteRange>(tail.begin(), tail.end()));
    if (const auto found = tails_.find(key); found != tails_.end()) return found->second;
    const StateId state = new_state(needed_);
    tails_[key] = state;
    builder_.bytes(state, tail[0].first, tail[0].second, tail_state(tail.subspan(1), to));
    return state;
  }

  void add_utf8(StateId from, uint32_t low, uint32_t high, StateId to) {
    static constexpr uint32_t kLast[] = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
    for (int extra = 0; extra < 4 && low <= high; ++extra) {
      if (low > kLast[extra]) continue;
      split(from, low, std::min(high, kLast[extra]), extra, to);
      low = kLast[extra] + 1;
    }
  }

  // A range of code points with `extra` continuation bytes, cut until every byte of it is a range
  // independent of the others.
  void split(StateId from, uint32_t low, uint32_t high, int extra, StateId to) {
    for (int i = 1; i <= extra; ++i) {
      const uint32_t mask = (1u << (6 * i)) - 1;
      if ((low & ~mask) == (high & ~mask)) continue;
      if ((low & mask) != 0) {
        split(from, low, low | mask, extra, to);
        return split(from, (low | mask) + 1, high, extra, to);
      }
      if ((high & mask) != mask) {
        split(from, low, (high & ~mask) - 1, extra, to);
        return split(from, high & ~mask, high, extra, to);
      }
    }
    std::vector<ByteRange> sequence;
    for (int i = 0; i <= extra; ++i)
      sequence.emplace_back(utf8_byte(low, extra, i), utf8_byte(high, extra, i));
    builder_.bytes(from, sequence[0].first, sequence[0].second,
                   tail_state(std::span<const ByteRange>(sequence).subspan(1), to), kCounts);
  }

  static uint8_t utf8_byte(uint32_t c, int extra, int index) {
    const uint32_t bits = c >> (6 * (extra - index));
    if (index > 0) return static_cast<uint8_t>(0x80 | (bits & 0x3F));
    static constexpr uint8_t kLead[] = {0x00, 0xC0, 0xE0, 0xF0};
    return static_cast<uint8_t>(kLead[extra] | bits);
  }

  GrammarBuilder& builder_;
  StringEncoding encoding_;
  uint32_t needed_ = 0;
  std::map<uint32_t, Target> escapes_;  // of the state that is being written
  std::map<std::map<uint32_t, Target>, StateId> escape_states_;
  std::map<std::pair<StateId, std::vector<ByteRange>>, StateId> tails_;
};

// Characters from each state to the nearest end.
std::vector<uint32_t> distances(const CharDfa& dfa) {
  const size_t num_states = dfa.next.size();
  std::vector<std::vector<uint32_t>> sources(num_states);
  for (uint32_t state = 0; state < num_states; ++state)
    for (const uint32_t target : dfa.next[state])
      if (target != CharDfa::kDead) sources[target].push_back(state);
  std::vector<uint32_t> distance(num_states, kUnbounded);
  std::deque<uint32_t> queue;
  for (uint32_t state = 0; state < num_states; ++state)
    if (dfa.accepts[state]) {
      distance[state] = 0;
      queue.push_back(state);
    }
  while (!queue.empty()) {
    const uint32_t state = queue.front();
    queue.pop_front();
    for (const uint32_t source : sources[state])
      if (distance[source] == kUnbounded) {
        distance[source] = distance[state] + 1;
        queue.push_back(source);
      }
  }
  return distance;
}

}  // namespace

uint32_t shortest_length(const CharDfa& dfa) {
  return dfa.is_empty() ? kUnbounded : distances(dfa)[dfa.start];
}

void add_to_grammar(const CharDfa& dfa, StringEncoding encoding, GrammarBuilder& builder,
                    StateId from, std::vector<StateId>& ends) {
  if (dfa.is_empty()) return;
  const std::vector<uint32_t> distance = distances(dfa);
  std::vector<StateId> states(dfa.next.size());
  for (uint32_t i = 0; i < states.size(); ++i) {
    if (distance[i] == kUnbounded) continue;
    states[i] = builder.add_state();
    builder.need_chars(states[i], distance[i]);
    if (dfa.accepts[i]) ends.push_back(states[i]);
  }
  builder.empty(from, states[dfa.start]);
  ByteWriter writer(builder, encoding);
  for (uint32_t i = 0; i < states.size() && !builder.is_full(); ++i) {
    if (distance[i] == kUnbounded) continue;
    const std::vector<uint32_t>& row = dfa.next[i];
    for (size_t c = 0; c < row.size();) {
      size_t end = c + 1;
      while (end < row.size() && row[end] == row[c] && dfa.bounds[end] != 0xE000) ++end;
      if (row[c] != CharDfa::kDead) {
        const uint32_t high = end < row.size() ? dfa.bounds[end] - 1 : CharSet::kMaxCodePoint;
        writer.add(states[i], dfa.bounds[c], high, states[row[c]], distance[row[c]]);
      }
      c = end;
    }
    writer.finish(states[i]);
  }
}

}  // namespace invar
