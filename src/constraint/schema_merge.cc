#include "constraint/schema_merge.h"

#include <algorithm>
#include <numeric>

namespace invar {
namespace {

// Equal as JSON Schema says: members may stand in any order.
bool is_same(const Json& a, const Json& b) {
  if (a.is_array() && b.is_array())
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(),
                      is_same);
  if (!a.is_object() || !b.is_object()) return a == b;
  return a.members().size() == b.members().size() &&
         std::all_of(a.members().begin(), a.members().end(), [&](const Json::Member& member) {
           const Json* other = b.find(member.first);
           return other && is_same(member.second, *other);
         });
}

Error twice(const char* what, const std::string& path) {
  return invalid_argument(
      "unsupported keyword '%s' at %s: it is constrained by two schemas that must hold together "
      "(allOf, or keywords beside $ref, anyOf or oneOf)",
      what, path.c_str());
}

bool has_property(const SchemaNode& node, const std::string& name) {
  return std::any_of(node.properties.begin(), node.properties.end(),
                     [&](const auto& property) { return property.first == name; });
}

// additionalProperties of `one` speaks of all that `one` does not name itself.
bool leaves_alone(const SchemaNode& one, const SchemaNode& other) {
  if (!one.additional || accepts_everything(one.additional->json)) return true;
  return std::all_of(other.properties.begin(), other.properties.end(),
                     [&](const auto& property) { return has_property(one, property.first); });
}

Result<void> merge_object(SchemaNode& node, const SchemaNode& other) {
  if (!leaves_alone(node, other) || !leaves_alone(other, node))
    return twice("additionalProperties", other.path);
  if (node.additional && other.additional &&
      !is_same(node.additional->json, other.additional->json))
    return twice("additionalProperties", other.path);
  if (!node.additional) node.additional = other.additional;
  node.has_properties |= other.has_properties;
  for (const auto& [name, schema] : other.properties) {
    const auto known = std::find_if(node.properties.begin(), node.properties.end(),
                                    [&, &key = name](const auto& p) { return p.first == key; });
    if (known == node.properties.end()) {
      node.properties.emplace_back(name, schema);
    } else if (accepts_everything(known->second.json)) {
      known->second = schema;
    } else if (!accepts_everything(schema.json) && !is_same(known->second.json, schema.json)) {
      return twice("properties", schema.path);
    }
  }
  for (const std::string& name : other.required)
    if (std::find(node.required.begin(), node.required.end(), name) == node.required.end())
      node.required.push_back(name);
  return {};
}

Result<void> merge_array(SchemaNode& node, const SchemaNode& other) {
  node.min_items = std::max(node.min_items, other.min_items);
  if (other.max_items && (!node.max_items || *other.max_items < *node.max_items))
    node.max_items = other.max_items;
  const bool mine = node.items || !node.prefix_items.empty();
  const bool theirs = other.items || !other.prefix_items.empty();
  if (!theirs) return {};
  if (mine) {
    const bool same_items = node.items.has_value() == other.items.has_value() &&
                            (!node.items || is_same(node.items->json, other.items->json));
    const bool same_prefix =
        std::equal(node.prefix_items.begin(), node.prefix_items.end(), other.prefix_items.begin(),
                   other.prefix_items.end(),
                   [](const auto& a, const auto& b) { return is_same(a.json, b.json); });
    if (!same_items || !same_prefix) return twice("items", other.path);
  }
  node.items = other.items;
  node.prefix_items = other.prefix_items;
  return {};
}

bool shares_no_value(const SchemaNode& a, const SchemaNode& b) {
  return a.values && b.values &&
         std::none_of(a.values->begin(), a.values->end(),
                      [&](const Json& v) { return contains_value(*b.values, v); });
}

// The values that a property may have, when its schema lists them itself.
std::optional<std::vector<Json>> listed_values(const SchemaNode& node, const std::string& name) {
  if (std::find(node.required.begin(), node.required.end(), name) == node.required.end())
    return std::nullopt;
  for (const auto& [key, schema] : node.properties) {
    if (key != name) continue;
    if (schema.json.find("nullable")) return std::nullopt;  // null may be another value
    if (const Json* value = schema.json.find("const")) return std::vector<Json>{*value};
    const Json* values = schema.json.find("enum");
    if (values && values->is_array()) return values->items();
  }
  return std::nullopt;
}

uint8_t types_of(const std::vector<Json>& values) {
  uint8_t types = 0;
  for (const Json& value : values) types |= type_of(value);
  return types;
}

}  // namespace

bool contains_value(const std::vector<Json>& values, const Json& value) {
  return std::any_of(values.begin(), values.end(),
                     [&](const Json& other) { return is_same(value, other); });
}

void tighten_low(std::optional<NumberBound>& bound, const NumberBound& other) {
  const int order = bound ? compare(other.value, bound->value) : 1;
  if (order > 0) bound = other;
  if (order == 0) bound->exclusive |= other.exclusive;
}
void tighten_high(std::optional<NumberBound>& bound, const NumberBound& other) {
  const int order = bound ? compare(other.value, bound->value) : -1;
  if (order < 0) bound = other;
  if (order == 0) bound->exclusive |= other.exclusive;
}

Result<bool> merge_nodes(SchemaNode& node, const SchemaNode& other) {
  node.has_type |= other.has_type;
  node.types &= other.types;
  if (node.types == 0) return false;
  if (other.values) {
    if (node.values)
      std::erase_if(*node.values, [&](const Json& v) { return !contains_value(*other.values, v); });
    else
      node.values = other.values;
  }
  INVAR_TRY_VOID(merge_object(node, other));
  INVAR_TRY_VOID(merge_array(node, other));
  node.min_length = std::max(node.min_length, other.min_length);
  if (other.max_length && (!node.max_length || *other.max_length < *node.max_length))
    node.max_length = other.max_length;
  const auto add_all = [](std::vector<std::string>& to, const std::vector<std::string>& from) {
    for (const std::string& text : from)
      if (std::find(to.begin(), to.end(), text) == to.end()) to.push_back(text);
  };
  add_all(node.patterns, other.patterns);
  add_all(node.formats, other.formats);
  if (node.pattern_path.empty()) node.pattern_path = other.pattern_path;
  if (node.format_path.empty()) node.format_path = other.format_path;
  if (other.low) tighten_low(node.low, *other.low);
  if (other.high) tighten_high(node.high, *other.high);
  node.multiple_of = std::lcm(node.multiple_of, other.multiple_of);
  if (node.multiple_of > kMaxMultipleOf) return twice("multipleOf", other.path);
  return true;
}

bool is_disjoint(const SchemaNode& a, const SchemaNode& b) {
  if (shares_no_value(a, b)) return true;
  // What one writes, by type, against what the other would take.
  const auto taken_types = [](const SchemaNode& node) {
    const uint8_t types = node.has_type ? node.types : uint8_t{kTypeAny};
    return static_cast<uint8_t>(node.values ? types & types_of(*node.values) : types);
  };
  const uint8_t a_takes = taken_types(a), b_takes = taken_types(b);
  const uint8_t shared =
      (a.written_types() & a_takes & b_takes) | (b.written_types() & b_takes & a_takes);
  if (shared == 0) return true;
  if (shared != kTypeObject) return false;
  for (const auto& [name, schema] : a.properties) {
    const auto in_a = listed_values(a, name), in_b = listed_values(b, name);
    if (!in_a || !in_b) continue;
    SchemaNode left, right;
    left.values = in_a;
    right.values = in_b;
    if (shares_no_value(left, right)) return true;
  }
  return false;
}

}  // namespace invar
