// Building a grammar, and the clean-up that makes every state of it lead to an end.
#include "constraint/grammar.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "constraint/string_automaton.h"

namespace invar {

GrammarBuilder::GrammarBuilder() {
  for (int i = 0; i < kNumStringStates; ++i) add_state();
  for (const StringEdge& edge : string_edges())
    bytes(static_cast<StateId>(edge.from), edge.low, edge.high, static_cast<StateId>(edge.to),
          edge.to == kStringEnd ? kNeedsMin
          : edge.counts         ? kCounts
                                : kPlain);
  accept(kStringEnd);
}

StateId GrammarBuilder::add_state() {
  if (facts_.size() >= kMaxGrammarStates) {
    is_full_ = true;  // finish() refuses; until then all that is added lands in one state
    return kMaxGrammarStates - 1;
  }
  edges_.emplace_back();
  facts_.emplace_back();
  return static_cast<StateId>(facts_.size() - 1);
}

RuleId GrammarBuilder::add_rule(FrameKind kind) {
  return add_rule(kind, add_state(), 0, kUnbounded);
}

RuleId GrammarBuilder::add_rule(FrameKind kind, StateId start, uint32_t min, uint32_t max) {
  if (rules_.size() >= kMaxGrammarRules) {
    is_full_ = true;
    return kMaxGrammarRules - 1;
  }
  rules_.push_back({start, kind, min, max});
  return static_cast<RuleId>(rules_.size() - 1);
}

void GrammarBuilder::set_counts(RuleId rule, uint32_t min, uint32_t max) {
  rules_[rule].min = min;
  rules_[rule].max = max;
}

void GrammarBuilder::byte(StateId from, uint8_t value, StateId to, uint8_t flags) {
  bytes(from, value, value, to, flags);
}

void GrammarBuilder::bytes(StateId from, int low, int high, StateId to, uint8_t flags) {
  edges_[from].bytes.push_back(
      {static_cast<uint16_t>(low), static_cast<uint16_t>(high), flags, to});
}

void GrammarBuilder::call(StateId from, RuleId rule, StateId to) {
  edges_[from].calls.push_back({rule, to});
}

void GrammarBuilder::empty(StateId from, StateId to) { edges_[from].empties.push_back(to); }

void GrammarBuilder::literal(StateId from, std::string_view text, StateId to) {
  if (text.empty()) return empty(from, to);
  for (size_t i = 0; i < text.size(); ++i) {
    const StateId next = i + 1 == text.size() ? to : add_state();
    byte(from, static_cast<uint8_t>(text[i]), next);
    from = next;
  }
}

void GrammarBuilder::spaces(StateId from, StateId to) {
  const StateId space = add_state(), line = add_state();
  empty(from, to);
  byte(from, ' ', space);
  empty(space, to);
  byte(from, '\n', line);
  byte(line, ' ', line, kCountsSpace);
  empty(line, to);
}

std::vector<StateId> GrammarBuilder::search(StateId from, std::string_view text, StateId to) {
  std::vector<StateId> states(text.size());
  for (StateId& state : states) state = add_state();
  empty(from, states[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto target = [&](int byte) {
      std::string seen(text.substr(0, i));
      seen += static_cast<char>(byte);
      size_t keep = seen.size();
      while (!text.starts_with(std::string_view(seen).substr(seen.size() - keep))) --keep;
      return keep == text.size() ? to : states[keep];
    };
    for (int low = 0, high = 0; low < 256; low = high + 1) {
      for (high = low; high < 255 && target(high + 1) == target(low);) ++high;
      bytes(states[i], low, high, target(low));
    }
  }
  return states;
}

bool GrammarBuilder::marker(StateId from, int32_t token_id, StateId to) {
  auto known = std::find_if(markers_.begin(), markers_.end(),
                            [&](const auto& marker) { return marker.first == token_id; });
  if (known == markers_.end()) {
    if (markers_.size() == kMaxMarkers) return false;
    known = markers_.insert(markers_.end(), {token_id, 256 + static_cast<int>(markers_.size())});
  }
  bytes(from, known->second, known->second, to);
  return true;
}

// Least depth first: with each depth allowed one after the other, states from which the end can be
// reached are collected backwards from the ends of rules; a call may be stepped over once its rule
// is known to end within the depth that is left.
void GrammarBuilder::find_depths(Grammar& grammar) const {
  const size_t num_states = facts_.size();
  std::vector<std::vector<StateId>> sources(num_states);  // by bytes and empty steps
  std::vector<std::vector<std::pair<StateId, StateId>>> callers(rules_.size());  // (from, target)
  std::vector<std::vector<std::pair<StateId, RuleId>>> calls_to(num_states);     // (from, rule)
  std::vector<std::vector<RuleId>> starts(num_states);
  for (StateId state = 0; state < num_states; ++state) {
    for (const ByteEdge& edge : grammar.byte_edges(state)) sources[edge.target].push_back(state);
    for (const StateId target : grammar.empty_edges(state)) sources[target].push_back(state);
    for (const CallEdge& edge : grammar.call_edges(state)) {
      callers[edge.rule].emplace_back(state, edge.target);
      calls_to[edge.target].emplace_back(state, edge.rule);
    }
  }
  for (RuleId rule = 0; rule < rules_.size(); ++rule) starts[rules_[rule].start].push_back(rule);

  auto& facts = grammar.facts_;
  std::vector<uint8_t> rule_depth(rules_.size(), 255);  // frames that a call of it opens
  std::vector<StateId> found;
  for (int depth = 0; depth <= kMaxOutputDepth; ++depth) {
    const auto reach = [&](StateId state) {
      if (facts[state].depth_needed != 255) return;
      facts[state].depth_needed = static_cast<uint8_t>(depth);
      found.push_back(state);
    };
    const auto may_call = [&](RuleId rule) { return rule_depth[rule] <= depth; };
    if (depth == 0) {
      for (StateId state = 0; state < num_states; ++state)
        if (facts[state].accepts) reach(state);
    }
    for (RuleId rule = 0; rule < rules_.size(); ++rule) {
      if (rule_depth[rule] != depth) continue;
      for (const auto& [from, target] : callers[rule])
        if (facts[target].depth_needed != 255) reach(from);
    }
    while (!found.empty()) {
      const StateId state = found.back();
      found.pop_back();
      for (const StateId source : sources[state]) reach(source);
      for (const auto& [from, rule] : calls_to[state])
        if (may_call(rule)) reach(from);
      for (const RuleId rule : starts[state]) {
        const bool opens = rules_[rule].kind == FrameKind::kStructure;
        rule_depth[rule] = static_cast<uint8_t>(depth + (opens ? 1 : 0));
        if (opens) continue;  // its callers' turn comes with the next depth
        for (const auto& [from, target] : callers[rule])
          if (facts[target].depth_needed != 255) reach(from);
      }
    }
  }
}

// Two bytes share a class when every edge has both or neither.
void GrammarBuilder::number_classes(Grammar& grammar) const {
  std::array<bool, kNumSymbols + 1> cuts = {};
  for (const ByteEdge& edge : grammar.bytes_) {
    cuts[edge.low] = true;
    cuts[edge.high + size_t{1}] = true;
  }
  int symbol_class = -1;
  for (int symbol = 0; symbol < kNumSymbols; ++symbol) {
    if (symbol == 0 || cuts[static_cast<size_t>(symbol)]) {
      ++symbol_class;
      grammar.class_symbols_.push_back(symbol);
    }
    grammar.classes_[static_cast<size_t>(symbol)] = static_cast<uint16_t>(symbol_class);
  }
}

Result<Grammar> GrammarBuilder::finish(RuleId root, const std::bitset<256>& spellable) {
  if (is_full_)
    return resource_exhausted("schema too complex: it needs more than %u states or %u rules",
                              kMaxGrammarStates, kMaxGrammarRules);
  Grammar grammar;
  grammar.facts_ = facts_;
  grammar.rules_ = rules_;
  grammar.root_ = root;
  grammar.markers_ = markers_;
  // Edges that survive `keep`; ranges are cut where the vocabulary has no token of that byte.
  const auto flatten = [&](const auto& keep) {
    grammar.bytes_.clear();
    grammar.calls_.clear();
    grammar.empties_.clear();
    grammar.begins_.clear();
    const auto begin = [&] {
      grammar.begins_.push_back({static_cast<uint32_t>(grammar.bytes_.size()),
                                 static_cast<uint32_t>(grammar.calls_.size()),
                                 static_cast<uint32_t>(grammar.empties_.size())});
    };
    for (const Edges& edges : edges_) {
      begin();
      for (const ByteEdge& edge : edges.bytes) {
        if (!keep(edge.target)) continue;
        for (int low = edge.low; low <= edge.high; ++low) {
          const auto usable = [&](int symbol) {
            return symbol >= 256 || spellable[static_cast<size_t>(symbol)];
          };
          if (!usable(low)) continue;
          int high = low;
          while (high < edge.high && usable(high + 1)) ++high;
          grammar.bytes_.push_back(
              {static_cast<uint16_t>(low), static_cast<uint16_t>(high), edge.flags, edge.target});
          low = high;
        }
      }
      for (const CallEdge& edge : edges.calls)
        if (keep(edge.target) && keep(rules_[edge.rule].start)) grammar.calls_.push_back(edge);
      for (const StateId target : edges.empties)
        if (keep(target)) grammar.empties_.push_back(target);
    }
    begin();
  };
  flatten([](StateId) { return true; });
  find_depths(grammar);
  if (grammar.facts_[rules_[root].start].depth_needed == 255)
    return invalid_argument(
        "no value can satisfy the schema within %d objects and arrays inside one another and with "
        "the bytes that the model's vocabulary can spell",
        kMaxOutputDepth);
  flatten([&](StateId state) { return grammar.facts_[state].depth_needed != 255; });
  for (const Grammar::Facts& facts : grammar.facts_) {
    if (facts.depth_needed == 255) continue;
    grammar.max_depth_needed_ = std::max<int>(grammar.max_depth_needed_, facts.depth_needed);
    grammar.max_chars_needed_ = std::max(grammar.max_chars_needed_, facts.chars_needed);
  }
  number_classes(grammar);
  return grammar;
}

}  // namespace invar
