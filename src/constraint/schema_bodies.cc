// Bodies of objects and arrays, and what tool calls are made of.
//
// Members come in the order of the schema; optional ones may be left out; extra members follow. So
// an object needs one state for each listed member and not one for each set of them.
#include <algorithm>

#include "base/check.h"
#include "constraint/schema_compiler.h"

namespace invar {

Result<SchemaCompiler::Members> SchemaCompiler::members_of(const SchemaNode& node) const {
  Members members;
  members.listed = node.properties;
  for (const std::string& name : node.required) {
    const bool is_listed =
        std::any_of(node.properties.begin(), node.properties.end(),
                    [&](const auto& property) { return property.first == name; });
    if (is_listed) continue;
    const SchemaRef schema =
        node.additional ? *node.additional : SchemaRef{Json(true), node.path + "/required"};
    if (schema.json.is_bool() && !schema.json.as_bool())
      return invalid_argument(
          "keyword 'required' at %s names %s, which additionalProperties excludes",
          node.path.c_str(), json_quote(name.substr(0, 80)).c_str());
    members.listed.emplace_back(name, schema);
  }
  for (const auto& [name, schema] : members.listed)
    members.required.push_back(std::find(node.required.begin(), node.required.end(), name) !=
                               node.required.end());
  // Absent beside `properties` it counts as false: all that is written still validates.
  const bool closed = node.additional
                          ? node.additional->json.is_bool() && !node.additional->json.as_bool()
                          : node.has_properties;
  if (!closed)
    members.extra = node.additional ? *node.additional
                                    : SchemaRef{Json(true), node.path + "/additionalProperties"};
  return members;
}

// key : from `from`; `value_at` is where the value begins, the result where it must end.
StateId SchemaCompiler::add_key_value(StateId from, RuleId key, StateId& value_at) {
  const StateId colon = builder_.add_state(), before = builder_.add_state();
  const StateId after = builder_.add_state();
  value_at = builder_.add_state();
  builder_.call(from, key, before);
  builder_.spaces(before, colon);
  const StateId behind = builder_.add_state();
  builder_.byte(colon, ':', behind);
  builder_.spaces(behind, value_at);
  return after;
}

Result<void> SchemaCompiler::make_object(const Body& body) {
  INVAR_TRY(const Members members, members_of(body.node));
  const size_t n = members.listed.size();
  const StateId end = builder_.add_state();
  builder_.accept(end);
  // next[i]: a member from the i-th on must follow.
  std::vector<StateId> next(n + 1);
  for (StateId& state : next) state = builder_.add_state();
  std::vector<bool> may_close(n + 1, true);  // none of the members from i on is required
  for (size_t i = n; i-- > 0;) may_close[i] = may_close[i + 1] && !members.required[i];

  const StateId open = builder_.add_state(), first = builder_.add_state();
  builder_.byte(builder_.start(body.rule), '{', open);
  builder_.spaces(open, first);
  builder_.empty(first, next[0]);
  if (may_close[0]) builder_.byte(first, '}', end);
  const auto add_member = [&](size_t i, RuleId key, const SchemaRef& schema,
                              size_t following) -> Result<void> {
    StateId value_at = 0;
    const StateId after = add_key_value(next[i], key, value_at);
    INVAR_TRY(const size_t index, value(body.document, schema));
    add(values_[index], value_at, after);
    const StateId behind = builder_.add_state(), comma = builder_.add_state();
    builder_.spaces(after, behind);
    if (may_close[following]) builder_.byte(behind, '}', end);
    builder_.byte(behind, ',', comma);
    builder_.spaces(comma, next[following]);
    return {};
  };
  for (size_t i = 0; i < n && !builder_.is_full(); ++i) {
    const auto& [name, schema] = members.listed[i];
    INVAR_TRY_VOID(add_member(i, key_rule(name), schema, i + 1));
    if (!members.required[i]) builder_.empty(next[i], next[i + 1]);
  }
  if (members.extra) INVAR_TRY_VOID(add_member(n, other_keys(members.listed), *members.extra, n));
  return {};
}

// The items of the prefix have states of their own; those that follow are counted.
Result<void> SchemaCompiler::make_array(const Body& body) {
  const SchemaNode& node = body.node;
  const int64_t min = node.min_items, max = node.max_items.value_or(-1);
  if (max >= 0 && min > max) return {};  // no array is one
  const StateId end = builder_.add_state();
  builder_.accept(end);
  const StateId open = builder_.add_state();
  StateId first = builder_.add_state();
  builder_.byte(builder_.start(body.rule), '[', open);
  builder_.spaces(open, first);
  if (min == 0) builder_.byte(first, ']', end);
  const auto may_have = [&](int64_t count) { return max < 0 || count <= max; };

  StateId item = builder_.add_state();  // where the next item begins
  builder_.empty(first, item);
  int64_t count = 0;
  for (const SchemaRef& schema : node.prefix_items) {
    if (!may_have(count + 1) || builder_.is_full()) return {};
    ++count;
    const StateId after = builder_.add_state(), behind = builder_.add_state();
    const StateId comma = builder_.add_state(), next = builder_.add_state();
    INVAR_TRY(const size_t index, value(body.document, schema));
    add(values_[index], item, after);
    builder_.spaces(after, behind);
    if (count >= min) builder_.byte(behind, ']', end);
    builder_.byte(behind, ',', comma);
    builder_.spaces(comma, next);
    item = next;
  }
  if (!may_have(count + 1)) return {};
  const SchemaRef rest = node.items ? *node.items : SchemaRef{Json(true), node.path + "/items"};
  INVAR_TRY(const size_t index, value(body.document, rest));
  // What is counted is the commas between items of the rest: one less than the items.
  const StateId after = builder_.add_state(), behind = builder_.add_state();
  const StateId comma = builder_.add_state();
  builder_.set_counts(body.rule, static_cast<uint32_t>(std::max<int64_t>(min - count - 1, 0)),
                      max < 0 ? kUnbounded : static_cast<uint32_t>(max - count - 1));
  add(values_[index], item, after);
  builder_.spaces(after, behind);
  builder_.byte(behind, ']', end, kNeedsMin);
  builder_.byte(behind, ',', comma, kCounts);
  builder_.spaces(comma, item);
  return {};
}

// ---- Tool calls

Result<void> SchemaCompiler::add_object(const SchemaReader& reader, const SchemaRef& schema,
                                        StateId from, StateId to) {
  const size_t document = index_of(reader);
  Value described;
  const auto described_all = [&]() -> Result<void> {
    INVAR_TRY(const std::vector<SchemaNode> nodes, reader.read(schema));
    for (SchemaNode node : nodes) {
      node.types &= kTypeObject;
      node.has_type = true;
      if (node.types == 0) continue;
      INVAR_TRY([[maybe_unused]] const Members members, members_of(node));
      INVAR_TRY_VOID(add_node(document, node, described));
    }
    if (described.rules.empty())
      return invalid_argument("the schema at %s must allow an object", schema.path.c_str());
    return {};
  }();
  if (!described_all) {
    if (!documents_[document].relaxed) return described_all;
    if (!relaxation_) relaxation_ = described_all.error().message;
    described = Value();
    SchemaNode any;
    any.types = kTypeObject;
    any.has_type = true;
    INVAR_TRY_VOID(add_node(document, any, described));
  }
  add(described, from, to);
  return {};
}

Result<void> SchemaCompiler::add_call(const SchemaReader& reader, const SchemaRef& arguments,
                                      const std::string& name, const std::string& key, StateId from,
                                      StateId to) {
  const RuleId rule = builder_.add_rule(FrameKind::kStructure);
  const StateId open = builder_.add_state(), first = builder_.add_state();
  builder_.byte(builder_.start(rule), '{', open);
  builder_.spaces(open, first);
  StateId name_at = 0, arguments_at = 0;
  const StateId after_name = add_key_value(first, key_rule("name"), name_at);
  builder_.call(name_at, key_rule(name), after_name);
  const StateId comma = builder_.add_state(), behind = builder_.add_state();
  const StateId second = builder_.add_state(), last = builder_.add_state();
  builder_.spaces(after_name, comma);
  builder_.byte(comma, ',', behind);
  builder_.spaces(behind, second);
  const StateId after = add_key_value(second, key_rule(key), arguments_at);
  INVAR_TRY_VOID(add_object(reader, arguments, arguments_at, after));
  builder_.spaces(after, last);
  const StateId end = builder_.add_state();
  builder_.byte(last, '}', end);
  builder_.accept(end);
  builder_.call(from, rule, to);
  return {};
}

Result<SchemaNode> SchemaCompiler::object_node(const SchemaReader& reader,
                                               const SchemaRef& schema) {
  const size_t document = index_of(reader);
  const auto found = [&]() -> Result<SchemaNode> {
    INVAR_TRY(std::vector<SchemaNode> nodes, reader.read(schema));
    std::erase_if(nodes, [](const SchemaNode& node) { return !(node.types & kTypeObject); });
    if (nodes.size() != 1 || nodes[0].values)
      return invalid_argument(
          "parameters at %s must be one object schema, without anyOf, oneOf or enum, for a model "
          "that writes one block for each parameter",
          schema.path.c_str());
    INVAR_TRY([[maybe_unused]] const Members members, members_of(nodes[0]));
    return nodes[0];
  }();
  if (found || !documents_[document].relaxed) return found;
  if (!relaxation_) relaxation_ = found.error().message;
  SchemaNode any;
  any.path = schema.path;
  return any;
}

// A value as XML parameters hold it: strings are raw text without quotes, all else is JSON.
Result<void> SchemaCompiler::add_raw_value(const SchemaReader& reader, const SchemaRef& schema,
                                           StateId from, std::string_view closing, StateId to) {
  const size_t document = index_of(reader);
  const auto add_free_text = [&] { builder_.search(from, closing, to); };
  const auto add_all = [&]() -> Result<void> {
    INVAR_TRY(const SchemaRef target, reader.follow(schema));
    if (accepts_everything(target.json)) return add_free_text(), Result<void>();
    INVAR_TRY(const std::vector<SchemaNode> nodes, reader.read(target));
    const auto is_free = [](const SchemaNode& node) {
      return (node.written_types() & kTypeString) && !node.values && node.patterns.empty() &&
             node.formats.empty() && node.min_length == 0 && !node.max_length;
    };
    // Free text holds every JSON text, too; the parser tells them apart by the schema.
    if (std::any_of(nodes.begin(), nodes.end(), is_free)) return add_free_text(), Result<void>();
    Value json;
    std::vector<StateId> ends;
    const StateId after_json = builder_.add_state();
    bool has_raw = false;
    for (SchemaNode node : nodes) {
      if (node.values) {
        for (const Json& value : *node.values)
          if (value.is_string() && (node.types & kTypeString)) {
            if (value.as_string().find(closing) != std::string::npos)
              return invalid_argument("unsupported keyword 'enum' at %s: a value holds %s",
                                      node.path.c_str(), std::string(closing).c_str());
            builder_.literal(from, value.as_string() + std::string(closing), to);
            has_raw = true;
          }
        std::erase_if(*node.values, [](const Json& value) { return value.is_string(); });
      } else if (node.written_types() & kTypeString) {
        if (node.max_length || node.min_length > 0)
          return invalid_argument(
              "unsupported keyword 'minLength' or 'maxLength' at %s: not for a string that the "
              "model writes without quotes",
              node.path.c_str());
        INVAR_TRY(const CharDfa dfa, string_dfa(node));
        INVAR_TRY(const CharDfa closed, intersect(dfa, without(closing)));
        add_to_grammar(closed, StringEncoding::kRaw, builder_, from, ends);
        has_raw = true;
      }
      node.types = node.written_types() & static_cast<uint8_t>(~kTypeString);
      node.has_type = true;
      if (node.types & kTypeObject) {
        INVAR_TRY([[maybe_unused]] const Members members, members_of(node));
      }
      if (node.types != 0) INVAR_TRY_VOID(add_node(document, node, json));
    }
    if (has_raw && !json.rules.empty())
      return invalid_argument(
          "unsupported keyword 'anyOf' at %s: limited strings beside objects or arrays, for a "
          "model that writes strings without quotes",
          target.path.c_str());
    add(json, from, after_json);
    ends.push_back(after_json);
    for (const StateId end : ends) builder_.literal(end, closing, to);
    return {};
  };
  // Errors come before anything is added to `from` but for literals of an enum, which stay
  // harmless.
  const Result<void> added = add_all();
  if (added || !documents_[document].relaxed) return added;
  if (!relaxation_) relaxation_ = added.error().message;
  add_free_text();
  return {};
}

}  // namespace invar
