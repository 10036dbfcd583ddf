#include "server/xml_values.h"

#include <algorithm>
#include <optional>

namespace invar::server {
namespace {

std::string lower(std::string_view text) {
  std::string result(text);
  std::transform(result.begin(), result.end(), result.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  return result;
}

// Lists and dictionaries as Python prints them: other quotes, True, False and None. Only text
// without double quotes, which would have to be told apart.
std::optional<Json> parse_python(std::string_view text) {
  if (text.find('"') != std::string_view::npos) return std::nullopt;
  std::string json;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto word = [&](std::string_view python, std::string_view ours) {
      if (in_string || text.substr(i, python.size()) != python) return false;
      json += ours;
      i += python.size() - 1;
      return true;
    };
    if (text[i] == '\\' && i + 1 < text.size() && in_string) {
      if (text[i + 1] == '\'') {
        json += '\'';
        ++i;
        continue;
      }
      json += text[i];
      json += text[++i];
    } else if (text[i] == '\'') {
      json += '"';
      in_string = !in_string;
    } else if (!word("True", "true") && !word("False", "false") && !word("None", "null")) {
      json += text[i];
    }
  }
  Result<Json> value = Json::parse(json);
  if (!value) return std::nullopt;
  return *std::move(value);
}

// `text` as a value of one JSON type, if it is one.
std::optional<Json> as_type(std::string_view text, std::string_view type) {
  if (type == "string") return Json(std::string(text));
  if (type == "boolean") {
    const std::string word = lower(text);
    if (word == "true" || word == "false") return Json(word == "true");
    return std::nullopt;
  }
  Result<Json> value = Json::parse(std::string(text));
  if (type == "integer" || type == "number") {
    if (!value || !value->is_number() || (type == "integer" && !value->is_int()))
      return std::nullopt;
    return *std::move(value);
  }
  std::optional<Json> result;
  if (value)
    result = *std::move(value);
  else
    result = parse_python(text);
  if (result &&
      ((type == "array" && !result->is_array()) || (type == "object" && !result->is_object())))
    return std::nullopt;
  return result;
}

std::string_view common_type(std::string_view type) {
  for (const std::string_view prefix : {"int", "uint", "long", "short"})
    if (type.starts_with(prefix)) return "integer";
  if (type.starts_with("num") || type.starts_with("float") || type == "double") return "number";
  if (type == "bool") return "boolean";
  if (type == "str" || type == "text" || type == "enum") return "string";
  if (type == "dict") return "object";
  if (type == "list") return "array";
  return type;
}

// The types that a schema allows, in its order; empty: it does not say.
std::vector<std::string> types_of(const Json& schema) {
  std::vector<std::string> types;
  const auto add = [&](const Json& type) {
    if (type.is_string()) types.emplace_back(common_type(type.as_string()));
  };
  if (const Json* type = schema.find("type")) {
    add(*type);
    if (type->is_array()) std::for_each(type->items().begin(), type->items().end(), add);
    return types;
  }
  for (const char* name : {"anyOf", "oneOf"})
    if (const Json* branches = schema.find(name); branches != nullptr && branches->is_array())
      for (const Json& branch : branches->items())
        for (std::string& type : types_of(branch)) types.push_back(std::move(type));
  if (const Json* values = schema.find("enum");
      types.empty() && values != nullptr && values->is_array() && !values->items().empty() &&
      std::all_of(values->items().begin(), values->items().end(),
                  [](const Json& value) { return value.is_string(); }))
    types = {"string"};
  return types;
}

}  // namespace

XmlValues::XmlValues(const std::vector<ToolFunction>& tools) {
  for (const ToolFunction& tool : tools) {
    const Result<Json> schema = Json::parse(tool.parameters_json);
    const Json* properties = schema ? schema->find("properties") : nullptr;
    properties_.emplace_back(tool.name, properties == nullptr ? Json::object() : *properties);
  }
}

std::string XmlValues::value_json(std::string_view function, std::string_view key,
                                  std::string_view text) const {
  if (text.starts_with('\n')) text.remove_prefix(1);
  if (text.ends_with('\n')) text.remove_suffix(1);
  const auto tool = std::find_if(properties_.begin(), properties_.end(),
                                 [&](const auto& entry) { return entry.first == function; });
  const Json* schema = tool == properties_.end() ? nullptr : tool->second.find(std::string(key));
  const std::vector<std::string> types =
      schema == nullptr ? std::vector<std::string>() : types_of(*schema);
  const bool is_string_only = !types.empty() && std::all_of(types.begin(), types.end(),
                                                            [](auto& t) { return t == "string"; });
  if (schema != nullptr && !is_string_only && lower(text) == "null") return "null";
  for (const std::string& type : types) {
    if (type == "null") continue;
    if (const std::optional<Json> value = as_type(text, type)) return value->dump();
  }
  // A schema that names no type may mean anything that is JSON.
  if (schema != nullptr && types.empty())
    if (const Result<Json> value = Json::parse(std::string(text))) return value->dump();
  return Json(std::string(text)).dump();
}

}  // namespace invar::server
