// Values, strings and constants; objects and arrays are in schema_bodies.cc.
#include "constraint/schema_compiler.h"

#include <algorithm>

#include "base/check.h"
#include "constraint/pattern.h"
#include "constraint/string_automaton.h"

namespace invar {
namespace {

size_t num_code_points(const std::string& text) {
  return static_cast<size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

// A context for errors of patterns and formats: keyword and place.
Error at_keyword(const char* keyword, const std::string& text, const std::string& path,
                 const Error& error) {
  const std::string shown = text.size() <= 80 ? text : text.substr(0, 77) + "...";
  const bool limit = error.code == ErrorCode::kResourceExhausted;
  return Error{error.code, format("%s '%s' at %s (%s): %s",
                                  limit ? "schema too complex:" : "unsupported keyword", keyword,
                                  path.c_str(), json_quote(shown).c_str(), error.message.c_str())};
}

}  // namespace

const SchemaReader& SchemaCompiler::open(const Json& document, bool relaxed) {
  Document& opened = documents_.emplace_back();
  opened.reader = std::make_unique<SchemaReader>(document);
  opened.relaxed = relaxed;
  return *opened.reader;
}

size_t SchemaCompiler::index_of(const SchemaReader& reader) const {
  for (size_t i = 0; i < documents_.size(); ++i)
    if (documents_[i].reader.get() == &reader) return i;
  INVAR_CHECK(false, "a reader of another compiler");
}

size_t SchemaCompiler::any_value(size_t document) {
  const auto [it, is_new] = documents_[document].values.try_emplace("", values_.size());
  if (!is_new) return it->second;
  const size_t index = values_.size();
  Value& any = values_.emplace_back();
  const Result<void> added = add_node(document, SchemaNode(), any);
  INVAR_CHECK(added.ok(), "%s", added.error().message.c_str());
  return index;
}

// Index into values_, which is a deque: indexes and references stay.
Result<size_t> SchemaCompiler::value(size_t document, const SchemaRef& schema) {
  const auto made = [&]() -> Result<size_t> {
    INVAR_TRY(const SchemaRef target, documents_[document].reader->follow(schema));
    if (accepts_everything(target.json)) return any_value(document);
    const auto known = documents_[document].values.find(target.path);
    if (known != documents_[document].values.end()) return known->second;
    INVAR_TRY(Value described, make_value(document, target));
    values_.push_back(std::move(described));
    documents_[document].values.emplace(target.path, values_.size() - 1);
    return values_.size() - 1;
  }();
  if (made || !documents_[document].relaxed) return made;
  if (!relaxation_) relaxation_ = made.error().message;
  return any_value(document);
}

Result<SchemaCompiler::Value> SchemaCompiler::make_value(size_t document, const SchemaRef& schema) {
  INVAR_TRY(const std::vector<SchemaNode> nodes, documents_[document].reader->read(schema));
  Value described;
  // A first look for errors, so that nothing is queued for a value that is refused.
  for (const SchemaNode& node : nodes)
    if (node.written_types() & kTypeObject) {
      INVAR_TRY([[maybe_unused]] const Members members, members_of(node));
    }
  for (const SchemaNode& node : nodes) INVAR_TRY_VOID(add_node(document, node, described));
  return described;
}

Result<void> SchemaCompiler::add_node(size_t document, const SchemaNode& node, Value& described) {
  if (node.values) return add_listed(node, described);
  const uint8_t types = node.written_types();
  if (types & kTypeNull) described.literals.push_back("null");
  if (types & kTypeBoolean) {
    described.literals.push_back("true");
    described.literals.push_back("false");
  }
  if (types & (kTypeInteger | kTypeFraction)) {
    NumberRange range;
    // Multiples of a whole number are whole; a fraction alone ("number" without "integer") does not
    // come out of a schema.
    range.integer = !(types & kTypeFraction) || node.multiple_of > 1;
    range.low = node.low;
    range.high = node.high;
    range.multiple_of = node.multiple_of;
    described.numbers.push_back(range);
  }
  if (types & kTypeString) INVAR_TRY_VOID(add_string(node, described));
  for (const auto& [type, is_object] : {std::pair{kTypeObject, true}, {kTypeArray, false}}) {
    if (!(types & type)) continue;
    const RuleId rule = builder_.add_rule(FrameKind::kStructure);
    described.rules.push_back(rule);
    bodies_.push_back({document, node, rule, is_object});
  }
  return {};
}

// enum and const. Keywords beside them that are simple are applied here; others are refused.
Result<void> SchemaCompiler::add_listed(const SchemaNode& node, Value& described) {
  std::vector<std::string> texts;
  for (const Json& listed : *node.values) {
    const uint8_t type = type_of(listed);
    if (!(node.types & type)) continue;
    const bool has_more =
        (type == kTypeString && (!node.patterns.empty() || !node.formats.empty())) ||
        (type == kTypeObject &&
         (node.has_properties || !node.required.empty() || node.additional)) ||
        (type == kTypeArray && (node.items || !node.prefix_items.empty()));
    if (has_more)
      return invalid_argument("unsupported keyword 'enum' at %s: other keywords constrain its %s",
                              node.path.c_str(), listed.kind_name());
    if (type == kTypeString) {
      const auto length = static_cast<int64_t>(num_code_points(listed.as_string()));
      if (length < node.min_length || (node.max_length && length > *node.max_length)) continue;
      texts.push_back(listed.as_string());
      continue;
    }
    if (type == kTypeArray) {
      const auto size = static_cast<int64_t>(listed.items().size());
      if (size < node.min_items || (node.max_items && size > *node.max_items)) continue;
    }
    if (listed.is_number() && (node.low || node.high || node.multiple_of > 1)) {
      INVAR_TRY(const Decimal decimal, to_decimal(listed));
      const int low = node.low ? compare(decimal, node.low->value) : 1;
      const int high = node.high ? compare(decimal, node.high->value) : -1;
      if (low < 0 || (low == 0 && node.low->exclusive)) continue;
      if (high > 0 || (high == 0 && node.high->exclusive)) continue;
      if (node.multiple_of > 1 && !(listed.is_int() && listed.as_int() % node.multiple_of == 0))
        continue;
    }
    if (type == kTypeArray || type == kTypeObject) {
      described.rules.push_back(constant_rule(listed));
    } else {
      described.literals.push_back(listed.dump());
    }
  }
  if (!texts.empty()) described.rules.push_back(choice_rule(texts));
  return {};
}

Result<CharDfa> SchemaCompiler::string_dfa(const SchemaNode& node) {
  std::optional<CharDfa> dfa;
  const auto add_dfa = [&](const char* keyword, const std::string& text, const std::string& path,
                           Result<CharDfa> compiled) -> Result<void> {
    if (compiled && dfa) compiled = intersect(*dfa, *compiled);
    if (!compiled) return at_keyword(keyword, text, path, compiled.error());
    dfa = *std::move(compiled);
    return {};
  };
  for (const std::string& text : node.patterns)
    INVAR_TRY_VOID(add_dfa("pattern", text, node.pattern_path, compile_pattern(text)));
  for (const std::string& text : node.formats)
    INVAR_TRY_VOID(add_dfa("format", text, node.format_path, compile_format(text)));
  Result<CharDfa> long_enough = at_least(*dfa, static_cast<uint32_t>(node.min_length));
  if (!long_enough) return at_keyword("minLength", "", node.path, long_enough.error());
  return long_enough;
}

Result<void> SchemaCompiler::add_string(const SchemaNode& node, Value& described) {
  const uint32_t min = static_cast<uint32_t>(node.min_length);
  const uint32_t max = node.max_length ? static_cast<uint32_t>(*node.max_length) : kUnbounded;
  if (min > max) return {};
  if (node.patterns.empty() && node.formats.empty()) {
    described.rules.push_back(free_string(min, max));
    return {};
  }
  std::string key = std::to_string(min) + "," + std::to_string(max);
  for (const std::string& text : node.patterns) key += ",p" + json_quote(text);
  for (const std::string& text : node.formats) key += ",f" + json_quote(text);
  const auto known = pattern_rules_.find(key);
  if (known != pattern_rules_.end()) {
    described.rules.push_back(known->second);
    return {};
  }
  INVAR_TRY(const CharDfa dfa, string_dfa(node));
  if (shortest_length(dfa) > max) return {};
  const RuleId rule = builder_.add_rule(FrameKind::kString);
  builder_.set_counts(rule, 0, max);
  const StateId begin = builder_.add_state(), end = builder_.add_state();
  builder_.byte(builder_.start(rule), '"', begin);
  std::vector<StateId> ends;
  add_to_grammar(dfa, StringEncoding::kJson, builder_, begin, ends);
  for (const StateId state : ends) builder_.byte(state, '"', end);
  builder_.accept(end);
  pattern_rules_.emplace(std::move(key), rule);
  described.rules.push_back(rule);
  return {};
}

RuleId SchemaCompiler::free_string(uint32_t min, uint32_t max) {
  const auto [it, is_new] = free_strings_.try_emplace({min, max}, 0);
  if (is_new) it->second = builder_.add_rule(FrameKind::kString, kStringOpen, min, max);
  return it->second;
}

RuleId SchemaCompiler::key_rule(const std::string& name) {
  const auto [it, is_new] = keys_.try_emplace(name, 0);
  if (is_new) it->second = choice_rule({name});
  return it->second;
}

// Any of the texts, in the spelling of json_quote.
RuleId SchemaCompiler::choice_rule(const std::vector<std::string>& texts) {
  const RuleId rule = builder_.add_rule(FrameKind::kString);
  const StateId end = builder_.add_state();
  builder_.accept(end);
  std::map<std::pair<StateId, char>, StateId> children;
  for (const std::string& text : texts) {
    const std::string quoted = json_quote(text);
    StateId at = builder_.start(rule);
    for (size_t i = 0; i < quoted.size() && !builder_.is_full(); ++i) {
      const bool is_last = i + 1 == quoted.size();
      const auto [it, is_new] = children.try_emplace({at, is_last ? '\0' : quoted[i]}, 0);
      if (is_new) {
        it->second = is_last ? end : builder_.add_state();
        builder_.byte(at, static_cast<uint8_t>(quoted[i]), it->second);
      }
      at = it->second;
    }
  }
  return rule;
}

// Keys that are none of those listed. While a key agrees with a listed one it has one spelling;
// once it differs it may go on as any string.
RuleId SchemaCompiler::other_keys(const std::vector<std::pair<std::string, SchemaRef>>& listed) {
  if (listed.empty()) return free_string(0, kUnbounded);
  struct Node {
    StringState inside = kStringBody;
    bool is_listed = false;
    std::map<uint8_t, size_t> children;
  };
  std::vector<Node> nodes(1);
  for (const auto& [name, schema] : listed) {
    const std::string quoted = json_quote(name);
    size_t at = 0;
    for (size_t i = 1; i + 1 < quoted.size(); ++i) {
      const uint8_t byte = static_cast<uint8_t>(quoted[i]);
      const auto found = nodes[at].children.find(byte);
      if (found != nodes[at].children.end()) {
        at = found->second;
        continue;
      }
      bool counts = false;
      Node next;
      next.inside = next_string_state(nodes[at].inside, byte, counts);
      nodes[at].children.emplace(byte, nodes.size());
      at = nodes.size();
      nodes.push_back(std::move(next));
    }
    nodes[at].is_listed = true;
  }
  const RuleId rule = builder_.add_rule(FrameKind::kString);
  std::vector<StateId> states(nodes.size());
  for (StateId& state : states) state = builder_.add_state();
  const StateId escape = builder_.add_state();  // short escapes, but for '/': it has two spellings
  for (const char c : {'"', '\\', 'b', 'f', 'n', 'r', 't'})
    builder_.byte(escape, static_cast<uint8_t>(c), kStringBody);
  builder_.byte(builder_.start(rule), '"', states[0]);
  for (size_t i = 0; i < nodes.size() && !builder_.is_full(); ++i) {
    const Node& node = nodes[i];
    for (const auto& [byte, next] : node.children) builder_.byte(states[i], byte, states[next]);
    const auto differs = [&](int byte) {
      return !node.children.contains(static_cast<uint8_t>(byte));
    };
    if (node.inside == kStringEscape) {
      for (const char c : {'"', '\\', 'b', 'f', 'n', 'r', 't'})
        if (differs(c)) builder_.byte(states[i], static_cast<uint8_t>(c), kStringBody);
      continue;
    }
    if (node.inside >= kStringEscape) continue;  // hex digits: the listed key's, or none
    for (const StringEdge& edge : string_edges()) {
      if (edge.from != node.inside) continue;
      for (int byte = edge.low; byte <= edge.high; ++byte) {
        if (!differs(byte) || (edge.to == kStringEnd && node.is_listed)) continue;
        int high = byte;
        while (high < edge.high && differs(high + 1)) ++high;
        builder_.bytes(states[i], byte, high,
                       edge.to == kStringEscape ? escape : static_cast<StateId>(edge.to));
        byte = high;
      }
    }
  }
  return rule;
}

// ---- Constants

RuleId SchemaCompiler::constant_rule(const Json& constant) {
  const RuleId rule = builder_.add_rule(FrameKind::kStructure);
  const bool is_object = constant.is_object();
  StateId at = builder_.add_state();
  const StateId end = builder_.add_state();
  builder_.accept(end);
  builder_.byte(builder_.start(rule), is_object ? '{' : '[', at);
  const auto next = [&](const auto& add) {
    const StateId to = builder_.add_state();
    add(to);
    at = to;
  };
  const auto skip_spaces = [&] { next([&](StateId to) { builder_.spaces(at, to); }); };
  bool is_first = true;
  const auto begin_item = [&] {
    if (!is_first) next([&](StateId to) { builder_.byte(at, ',', to); });
    if (!is_first) skip_spaces();
    is_first = false;
  };
  skip_spaces();
  if (is_object) {
    for (const auto& [key, member] : constant.members()) {
      begin_item();
      next([&, &name = key](StateId to) { builder_.call(at, key_rule(name), to); });
      skip_spaces();
      next([&](StateId to) { builder_.byte(at, ':', to); });
      skip_spaces();
      next([&, &item = member](StateId to) { add_constant(item, at, to); });
      skip_spaces();
    }
  } else {
    for (const Json& item : constant.items()) {
      begin_item();
      next([&](StateId to) { add_constant(item, at, to); });
      skip_spaces();
    }
  }
  builder_.byte(at, is_object ? '}' : ']', end);
  return rule;
}

void SchemaCompiler::add_constant(const Json& constant, StateId from, StateId to) {
  if (constant.is_string()) return builder_.call(from, key_rule(constant.as_string()), to);
  if (constant.is_object() || constant.is_array())
    return builder_.call(from, constant_rule(constant), to);
  builder_.literal(from, constant.dump(), to);
}

// ---- Into the grammar

void SchemaCompiler::add(const Value& described, StateId from, StateId to) {
  for (const RuleId rule : described.rules) builder_.call(from, rule, to);
  std::set<std::string> literals(described.literals.begin(), described.literals.end());
  for (const std::string& literal : literals) builder_.literal(from, literal, to);
  for (const NumberRange& range : described.numbers) {
    if (builder_.is_full()) return;
    // Digits that follow one another need a state of their own: a number's end is no new number.
    const StateId end = builder_.add_state();
    add_number(builder_, from, end, range);
    builder_.empty(end, to);
  }
}

Result<void> SchemaCompiler::add_value(const SchemaReader& reader, const SchemaRef& schema,
                                       StateId from, StateId to) {
  INVAR_TRY(const size_t index, value(index_of(reader), schema));
  add(values_[index], from, to);
  return {};
}

Result<void> SchemaCompiler::finish() {
  while (!bodies_.empty() && !builder_.is_full()) {
    const Body body = std::move(bodies_.front());
    bodies_.pop_front();
    INVAR_TRY_VOID(body.is_object ? make_object(body) : make_array(body));
  }
  return {};
}

}  // namespace invar
