// Reading keywords.
#include "constraint/schema.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "constraint/schema_merge.h"

namespace invar {
namespace {

constexpr std::string_view kAnnotations[] = {
    "title",      "description", "default",   "examples",         "example",
    "deprecated", "readOnly",    "writeOnly", "$schema",          "$comment",
    "$defs",      "definitions", "nullable",  "contentMediaType", "contentEncoding"};

std::string child(const std::string& path, std::string_view key) {
  return path + "/" + pointer_token(key);
}

Error unsupported_keyword(std::string_view keyword, const std::string& path, const char* why) {
  return invalid_argument("unsupported keyword '%s' at %s: %s", std::string(keyword).c_str(),
                          path.c_str(), why);
}

Error bad_value(std::string_view keyword, const std::string& path, const char* expected,
                const Json& found) {
  return invalid_argument("keyword '%s' at %s must be %s, got %s", std::string(keyword).c_str(),
                          path.c_str(), expected, found.kind_name());
}

std::optional<uint8_t> type_bits(std::string_view name) {
  if (name == "null") return kTypeNull;
  if (name == "boolean") return kTypeBoolean;
  if (name == "integer") return kTypeInteger;
  if (name == "number") return kTypeInteger | kTypeFraction;
  if (name == "string") return kTypeString;
  if (name == "array") return kTypeArray;
  if (name == "object") return kTypeObject;
  return std::nullopt;
}

Result<void> read_type(const Json& value, const std::string& path, SchemaNode& node) {
  std::vector<Json> names;
  if (value.is_array()) {
    names = value.items();
  } else {
    names.push_back(value);
  }
  node.has_type = true;
  node.types = 0;
  for (const Json& name : names) {
    const auto bits = name.is_string() ? type_bits(name.as_string()) : std::nullopt;
    if (!bits)
      return invalid_argument(
          "keyword 'type' at %s must name null, boolean, integer, number, string, array or object",
          path.c_str());
    node.types |= *bits;
  }
  return {};
}

// A whole number from 0 to `limit`; beyond it is a limit passed.
Result<int64_t> read_count(std::string_view keyword, const Json& value, const std::string& path,
                           int64_t limit) {
  int64_t count = -1;
  if (value.is_int()) {
    count = value.as_int();
  } else if (value.is_number() && value.as_double() >= 0 && value.as_double() < 1e15 &&
             value.as_double() == std::floor(value.as_double())) {
    count = static_cast<int64_t>(value.as_double());
  }
  if (count < 0) return bad_value(keyword, path, "a whole number that is not negative", value);
  if (count > limit)
    return resource_exhausted("schema too complex: '%s' at %s is %ld, the limit is %ld",
                              std::string(keyword).c_str(), path.c_str(), long{count}, long{limit});
  return count;
}

Result<void> read_bound(std::string_view keyword, const Json& value, const std::string& path,
                        SchemaNode& node) {
  if (!value.is_number()) return bad_value(keyword, path, "a number", value);
  Result<Decimal> decimal = to_decimal(value);
  if (!decimal) return unsupported_keyword(keyword, path, decimal.error().message.c_str());
  const NumberBound bound{*std::move(decimal), keyword.starts_with("exclusive")};
  if (keyword == "minimum" || keyword == "exclusiveMinimum") {
    tighten_low(node.low, bound);
  } else {
    tighten_high(node.high, bound);
  }
  return {};
}

Result<void> read_multiple_of(const Json& value, const std::string& path, SchemaNode& node) {
  if (!value.is_number()) return bad_value("multipleOf", path, "a number", value);
  const double factor = value.as_double();
  if (!(factor >= 1 && factor <= static_cast<double>(kMaxMultipleOf)) ||
      factor != std::floor(factor))
    return unsupported_keyword("multipleOf", path, "only whole numbers from 1 to 1000");
  node.multiple_of = static_cast<int64_t>(factor);
  return {};
}

Result<void> read_properties(const Json& value, const std::string& path, SchemaNode& node) {
  if (!value.is_object()) return bad_value("properties", path, "an object", value);
  node.has_properties = true;
  for (const auto& [name, schema] : value.members())
    node.properties.emplace_back(name, SchemaRef{schema, child(path + "/properties", name)});
  return {};
}

Result<void> read_required(const Json& value, const std::string& path, SchemaNode& node) {
  if (!value.is_array()) return bad_value("required", path, "an array of strings", value);
  for (const Json& name : value.items()) {
    if (!name.is_string()) return bad_value("required", path, "an array of strings", value);
    const auto& known = node.required;
    if (std::find(known.begin(), known.end(), name.as_string()) == known.end())
      node.required.push_back(name.as_string());
  }
  return {};
}

Result<void> read_values(std::string_view keyword, const Json& value, const std::string& path,
                         SchemaNode& node) {
  std::vector<Json> values = {value};
  if (keyword == "enum") {
    if (!value.is_array()) return bad_value(keyword, path, "an array", value);
    values = value.items();
    if (values.size() > kMaxEnumValues)
      return resource_exhausted("schema too complex: 'enum' at %s has %zu values, the limit is %zu",
                                path.c_str(), values.size(), kMaxEnumValues);
  }
  if (node.values) {  // enum and const side by side
    std::erase_if(values, [&](const Json& v) { return !contains_value(*node.values, v); });
  }
  node.values = std::move(values);
  return {};
}

// Keywords with a value of their own; false: none of them.
Result<bool> read_simple(std::string_view keyword, const Json& value, const std::string& path,
                         SchemaNode& node) {
  const auto done = [](const Result<void>& result) -> Result<bool> {
    if (!result) return result.error();
    return true;
  };
  if (keyword == "type") return done(read_type(value, path, node));
  if (keyword == "enum" || keyword == "const") return done(read_values(keyword, value, path, node));
  if (keyword == "properties") return done(read_properties(value, path, node));
  if (keyword == "required") return done(read_required(value, path, node));
  if (keyword == "minimum" || keyword == "maximum" || keyword == "exclusiveMinimum" ||
      keyword == "exclusiveMaximum")
    return done(read_bound(keyword, value, path, node));
  if (keyword == "multipleOf") return done(read_multiple_of(value, path, node));
  if (keyword == "additionalProperties") {
    node.additional = SchemaRef{value, child(path, keyword)};
  } else if (keyword == "items") {
    if (value.is_array())
      return unsupported_keyword(keyword, path, "an array of schemas is written prefixItems");
    node.items = SchemaRef{value, child(path, keyword)};
  } else if (keyword == "prefixItems") {
    if (!value.is_array()) return bad_value(keyword, path, "an array of schemas", value);
    for (size_t i = 0; i < value.items().size(); ++i)
      node.prefix_items.push_back(
          {value.items()[i], child(child(path, keyword), std::to_string(i))});
    if (node.prefix_items.size() > static_cast<size_t>(kMaxItemsLimit))
      return resource_exhausted("schema too complex: 'prefixItems' at %s has %zu schemas",
                                path.c_str(), node.prefix_items.size());
  } else if (keyword == "minItems") {
    INVAR_TRY(node.min_items, read_count(keyword, value, path, kMaxItemsLimit));
  } else if (keyword == "maxItems") {
    INVAR_TRY(node.max_items, read_count(keyword, value, path, kMaxItemsLimit));
  } else if (keyword == "minLength") {
    INVAR_TRY(node.min_length, read_count(keyword, value, path, kMaxLengthLimit));
  } else if (keyword == "maxLength") {
    INVAR_TRY(node.max_length, read_count(keyword, value, path, kMaxLengthLimit));
  } else if (keyword == "pattern" || keyword == "format") {
    if (!value.is_string()) return bad_value(keyword, path, "a string", value);
    (keyword == "pattern" ? node.patterns : node.formats).push_back(value.as_string());
    (keyword == "pattern" ? node.pattern_path : node.format_path) = path;
  } else {
    return false;
  }
  return true;
}

const char* why_unsupported(std::string_view keyword) {
  static constexpr std::string_view kKnown[] = {"not",
                                                "if",
                                                "then",
                                                "else",
                                                "dependentRequired",
                                                "dependentSchemas",
                                                "dependencies",
                                                "patternProperties",
                                                "propertyNames",
                                                "unevaluatedProperties",
                                                "unevaluatedItems",
                                                "contains",
                                                "minContains",
                                                "maxContains",
                                                "uniqueItems",
                                                "minProperties",
                                                "maxProperties",
                                                "$dynamicRef",
                                                "$anchor",
                                                "$dynamicAnchor",
                                                "$id",
                                                "additionalItems",
                                                "$recursiveRef"};
  const bool known = std::find(std::begin(kKnown), std::end(kKnown), keyword) != std::end(kKnown);
  return known ? "it cannot be enforced" : "no such keyword is known";
}

}  // namespace

std::string pointer_token(std::string_view key) {
  std::string out;
  for (const char c : key) out += c == '~' ? "~0" : c == '/' ? "~1" : std::string(1, c);
  return out;
}

uint8_t SchemaNode::written_types() const {
  if (has_type || values) return types;
  uint8_t spoken_of = 0;
  if (has_properties || !required.empty() || additional) spoken_of |= kTypeObject;
  if (items || !prefix_items.empty() || min_items > 0 || max_items) spoken_of |= kTypeArray;
  if (min_length > 0 || max_length || !patterns.empty() || !formats.empty())
    spoken_of |= kTypeString;
  if (low || high || multiple_of > 1) spoken_of |= kTypeInteger | kTypeFraction;
  return spoken_of == 0 ? types : types & spoken_of;
}

uint8_t type_of(const Json& value) {
  switch (value.kind()) {
    case Json::Kind::kNull:
      return kTypeNull;
    case Json::Kind::kBool:
      return kTypeBoolean;
    case Json::Kind::kInt:
      return kTypeInteger;
    case Json::Kind::kDouble:
      return value.as_double() == static_cast<double>(static_cast<int64_t>(
                                      std::clamp(value.as_double(), -9e18, 9e18)))
                 ? kTypeInteger
                 : kTypeFraction;
    case Json::Kind::kString:
      return kTypeString;
    case Json::Kind::kArray:
      return kTypeArray;
    case Json::Kind::kObject:
      return kTypeObject;
  }
  return 0;
}

bool is_annotation(std::string_view keyword) {
  return keyword.starts_with("x-") || std::find(std::begin(kAnnotations), std::end(kAnnotations),
                                                keyword) != std::end(kAnnotations);
}

bool accepts_everything(const Json& schema) {
  if (schema.is_bool()) return schema.as_bool();
  return schema.is_object() && std::all_of(schema.members().begin(), schema.members().end(),
                                           [](const Json::Member& member) {
                                             return is_annotation(member.first) &&
                                                    member.first != "nullable";
                                           });
}

Result<SchemaRef> SchemaReader::resolve(const std::string& pointer, const std::string& path) const {
  const auto fail = [&](const char* why) {
    return invalid_argument("unsupported keyword '$ref' at %s: %s: %s", path.c_str(), why,
                            pointer.substr(0, 200).c_str());
  };
  if (!pointer.starts_with('#')) return fail("only references within the schema are followed");
  if (pointer.size() > 1 && pointer[1] != '/') return fail("anchors are not followed");
  SchemaRef found{root_, "#"};
  size_t at = 1;
  while (at < pointer.size()) {
    const size_t end = std::min(pointer.find('/', at + 1), pointer.size());
    std::string key;
    for (size_t i = at + 1; i < end; ++i) {
      const auto hex = [&](size_t j) {
        return j < end && std::isxdigit(static_cast<unsigned char>(pointer[j])) != 0;
      };
      if (pointer[i] == '%' && hex(i + 1) && hex(i + 2)) {
        key += static_cast<char>(std::stoi(pointer.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        key += pointer[i];
      }
    }
    for (size_t i = key.find('~'); i != std::string::npos; i = key.find('~', i + 1))
      if (i + 1 < key.size() && (key[i + 1] == '0' || key[i + 1] == '1'))
        key.replace(i, 2, key[i + 1] == '0' ? "~" : "/");
    Json next;
    if (found.json.is_array()) {
      size_t index = 0;
      for (const char c : key) {
        if (c < '0' || c > '9' || index > found.json.items().size())
          return fail("there is no such place");
        index = index * 10 + static_cast<size_t>(c - '0');
      }
      if (key.empty() || index >= found.json.items().size()) return fail("there is no such place");
      next = found.json.items()[index];
    } else {
      const Json* member = found.json.find(key);
      if (!member) return fail("there is no such place");
      next = *member;
    }
    found = {next, child(found.path, key)};
    at = end;
  }
  return found;
}

Result<SchemaRef> SchemaReader::follow(SchemaRef ref) const {
  for (size_t hops = 0; hops <= kMaxSchemaDepth; ++hops) {
    const Json* pointer = ref.json.find("$ref");
    const bool is_bare =
        pointer && pointer->is_string() &&
        std::all_of(ref.json.members().begin(), ref.json.members().end(), [](const auto& member) {
          return member.first == "$ref" ||
                 (is_annotation(member.first) && member.first != "nullable");
        });
    if (!is_bare) return ref;
    INVAR_TRY(ref, resolve(pointer->as_string(), ref.path));
  }
  return invalid_argument("unsupported keyword '$ref' at %s: it goes in a circle",
                          ref.path.c_str());
}

Result<std::vector<SchemaNode>> SchemaReader::read(const SchemaRef& ref, size_t depth) const {
  if (depth > kMaxSchemaDepth)
    return resource_exhausted(
        "schema too complex: $ref, allOf, anyOf and oneOf at %s lead into one another more than "
        "%zu deep, or in a circle",
        ref.path.c_str(), kMaxSchemaDepth);
  const Json& schema = ref.json;
  const std::string& path = ref.path;
  SchemaNode base;
  base.path = path;
  if (schema.is_bool())
    return schema.as_bool() ? std::vector<SchemaNode>{base} : std::vector<SchemaNode>{};
  const auto size_of = [](const Json& json) {
    return static_cast<int64_t>(json.is_object()  ? json.members().size()
                                : json.is_array() ? json.items().size()
                                                  : 0);
  };
  work_ += 1 + size_of(schema);
  if (schema.is_object())
    for (const auto& [keyword, value] : schema.members()) work_ += size_of(value);
  if (work_ > kMaxSchemaWork)
    return resource_exhausted(
        "schema too complex: $ref and allOf at %s and elsewhere repeat more than %ld keywords",
        path.c_str(), long{kMaxSchemaWork});
  if (!schema.is_object())
    return invalid_argument("the schema at %s must be an object or a boolean, got %s", path.c_str(),
                            schema.kind_name());

  std::vector<std::vector<SchemaNode>> together;  // one of each list must hold
  bool nullable = false;
  for (const auto& [keyword, value] : schema.members()) {
    INVAR_TRY(const bool is_simple, read_simple(keyword, value, path, base));
    if (is_simple) continue;
    if (keyword == "nullable") {
      if (!value.is_bool()) return bad_value(keyword, path, "a boolean", value);
      nullable = value.as_bool();
      continue;
    }
    if (is_annotation(keyword) || (keyword == "$id" && path == "#")) continue;
    if (keyword == "uniqueItems" && value.is_bool() && !value.as_bool()) continue;
    if (keyword == "$ref") {
      if (!value.is_string()) return bad_value(keyword, path, "a string", value);
      INVAR_TRY(const SchemaRef target, resolve(value.as_string(), path));
      INVAR_TRY(std::vector<SchemaNode> nodes, read(target, depth + 1));
      together.push_back(std::move(nodes));
      continue;
    }
    if (keyword != "allOf" && keyword != "anyOf" && keyword != "oneOf")
      return unsupported_keyword(keyword, path, why_unsupported(keyword));
    if (!value.is_array() || value.items().empty())
      return bad_value(keyword, path, "an array of schemas", value);
    std::vector<std::vector<SchemaNode>> branches;
    size_t num_nodes = 0;
    for (size_t i = 0; i < value.items().size(); ++i) {
      const SchemaRef branch{value.items()[i], child(child(path, keyword), std::to_string(i))};
      INVAR_TRY(std::vector<SchemaNode> nodes, read(branch, depth + 1));
      num_nodes += nodes.size();
      if (num_nodes > kMaxAlternatives)
        return resource_exhausted("schema too complex: '%s' at %s has more than %zu alternatives",
                                  keyword.c_str(), path.c_str(), kMaxAlternatives);
      branches.push_back(std::move(nodes));
    }
    if (keyword == "oneOf") {
      for (size_t i = 0; i < branches.size(); ++i)
        for (size_t j = 0; j < i; ++j)
          for (const SchemaNode& a : branches[i])
            for (const SchemaNode& b : branches[j])
              if (!is_disjoint(a, b))
                return unsupported_keyword(
                    keyword, path,
                    "its branches must differ in type, or in a required property with const or "
                    "enum");
    }
    if (keyword == "allOf") {
      for (auto& nodes : branches) together.push_back(std::move(nodes));
    } else {
      std::vector<SchemaNode> any;
      for (auto& nodes : branches) any.insert(any.end(), nodes.begin(), nodes.end());
      together.push_back(std::move(any));
    }
  }
  std::vector<SchemaNode> result = {base};
  for (const std::vector<SchemaNode>& nodes : together) {
    std::vector<SchemaNode> merged;
    for (const SchemaNode& left : result)
      for (const SchemaNode& right : nodes) {
        SchemaNode both = left;
        INVAR_TRY(const bool possible, merge_nodes(both, right));
        if (possible) merged.push_back(std::move(both));
        if (merged.size() > kMaxAlternatives)
          return resource_exhausted("schema too complex: %s has more than %zu alternatives",
                                    path.c_str(), kMaxAlternatives);
      }
    result = std::move(merged);
  }
  if (nullable) {
    SchemaNode null;
    null.path = path;
    null.has_type = true;
    null.types = kTypeNull;
    result.push_back(std::move(null));
  }
  return result;
}

}  // namespace invar
