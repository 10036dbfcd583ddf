// What the compiler is tested against, written without it: random schemas, values made for them,
// and a validator that reads JSON Schema as its specification says.
#pragma once

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "tokenizer/regex.h"

namespace invar::testing {

inline size_t code_points(const std::string& text) {
  return static_cast<size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

// ---- Validator

inline bool has_type(const Json& value, const std::string& type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  return value.is_number() && value.as_double() == std::floor(value.as_double());  // integer
}

// Numbers are equal by value, members in any order.
inline bool same(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) return a.as_double() == b.as_double();
  if (a.kind() != b.kind()) return false;
  if (a.is_array())
    return std::equal(a.items().begin(), a.items().end(), b.items().begin(), b.items().end(), same);
  if (!a.is_object()) return a == b;
  return a.members().size() == b.members().size() &&
         std::all_of(a.members().begin(), a.members().end(), [&](const auto& member) {
           const Json* other = b.find(member.first);
           return other && same(member.second, *other);
         });
}

inline bool is_valid(const Json& value, const Json& schema, const Json& root) {
  if (schema.is_bool()) return schema.as_bool();
  const auto sub = [&](const Json& v, const Json& s) { return is_valid(v, s, root); };
  const auto number = [&](const char* key) { return schema.find(key)->as_double(); };
  if (const Json* ref = schema.find("$ref")) {
    const std::string& pointer = ref->as_string();
    const Json* target = pointer == "#" ? &root : nullptr;
    if (pointer.starts_with("#/$defs/")) target = root.find("$defs")->find(pointer.substr(8));
    if (!sub(value, *target)) return false;
  }
  if (const Json* type = schema.find("type")) {
    bool any = false;
    if (type->is_string()) any = has_type(value, type->as_string());
    if (type->is_array())
      for (const Json& name : type->items()) any |= has_type(value, name.as_string());
    if (!any) return false;
  }
  if (const Json* constant = schema.find("const"); constant && !same(value, *constant))
    return false;
  if (const Json* list = schema.find("enum"))
    if (std::none_of(list->items().begin(), list->items().end(),
                     [&](const Json& v) { return same(v, value); }))
      return false;
  if (const Json* all = schema.find("allOf"))
    for (const Json& branch : all->items())
      if (!sub(value, branch)) return false;
  if (const Json* any = schema.find("anyOf"))
    if (std::none_of(any->items().begin(), any->items().end(),
                     [&](const Json& branch) { return sub(value, branch); }))
      return false;
  if (const Json* one = schema.find("oneOf"))
    if (std::count_if(one->items().begin(), one->items().end(),
                      [&](const Json& branch) { return sub(value, branch); }) != 1)
      return false;
  if (value.is_number()) {
    const double x = value.as_double();
    if (schema.find("minimum") && x < number("minimum")) return false;
    if (schema.find("maximum") && x > number("maximum")) return false;
    if (schema.find("exclusiveMinimum") && x <= number("exclusiveMinimum")) return false;
    if (schema.find("exclusiveMaximum") && x >= number("exclusiveMaximum")) return false;
    if (const Json* factor = schema.find("multipleOf"))
      if (!value.is_int() || value.as_int() % factor->as_int() != 0) return false;
  }
  if (value.is_string()) {
    const auto length = static_cast<double>(code_points(value.as_string()));
    if (schema.find("minLength") && length < number("minLength")) return false;
    if (schema.find("maxLength") && length > number("maxLength")) return false;
    if (const Json* pattern = schema.find("pattern")) {
      const auto regex = Regex::compile(pattern->as_string());
      size_t begin = 0, end = 0;
      if (!regex.ok() || !regex->find(value.as_string(), 0, begin, end)) return false;
    }
  }
  if (value.is_array()) {
    const auto size = static_cast<double>(value.items().size());
    if (schema.find("minItems") && size < number("minItems")) return false;
    if (schema.find("maxItems") && size > number("maxItems")) return false;
    const Json* prefix = schema.find("prefixItems");
    const size_t num_prefix = prefix ? prefix->items().size() : 0;
    for (size_t i = 0; i < value.items().size(); ++i) {
      if (i < num_prefix && !sub(value.items()[i], prefix->items()[i])) return false;
      if (i >= num_prefix && schema.find("items") && !sub(value.items()[i], *schema.find("items")))
        return false;
    }
  }
  if (value.is_object()) {
    if (const Json* required = schema.find("required"))
      for (const Json& name : required->items())
        if (!value.find(name.as_string())) return false;
    const Json* properties = schema.find("properties");
    for (const auto& [name, member] : value.members()) {
      const Json* own = properties ? properties->find(name) : nullptr;
      if (own && !sub(member, *own)) return false;
      if (!own && schema.find("additionalProperties") &&
          !sub(member, *schema.find("additionalProperties")))
        return false;
    }
  }
  return true;
}

// ---- Random schemas and values

class SchemaMaker {
 public:
  explicit SchemaMaker(uint32_t seed) : rng_(seed) {}

  // A document with definitions that may refer to one another.
  Json document() {
    Json root = schema(3, true);
    if (!root.is_object()) return root;
    Json defs = Json::object();
    for (const char* name : {"p", "q"}) defs.set(name, schema(2, true));
    root.set("$defs", defs);
    return root;
  }

  // Text of a value that the schema allows, in the order of its members; empty: none was found.
  std::string value(const Json& root) {
    root_ = root;
    failed_ = false;
    const std::string text = write(root, 0);
    return failed_ ? std::string() : text;
  }

  size_t pick(size_t n) { return rng_() % n; }
  bool chance(int percent) { return pick(100) < static_cast<size_t>(percent); }

 private:
  static Json typed(const char* type) {
    Json schema = Json::object();
    schema.set("type", type);
    return schema;
  }

  Json scalar() {
    Json schema;
    switch (pick(8)) {
      case 0:
        return typed("boolean");
      case 1:
        schema = typed("integer");
        if (chance(50)) schema.set("minimum", static_cast<int>(pick(300)) - 150);
        if (chance(50)) schema.set("maximum", static_cast<int>(pick(300)) + 160);
        if (chance(20)) schema.set("multipleOf", static_cast<int>(pick(12)) + 1);
        return schema;
      case 2:
        schema = typed("number");
        if (chance(50)) schema.set("minimum", static_cast<double>(pick(4000)) / 16 - 100);
        if (chance(50)) schema.set("exclusiveMaximum", static_cast<double>(pick(4000)) / 16 + 151);
        return schema;
      case 3: {
        static const char* const kPatterns[] = {"^[a-z]{2,4}$",
                                                "^(foo|ba[rz]|\u00e9+)?$",
                                                "x",
                                                "^\\d+(\\.\\d{1,2})?$",
                                                "^[^\"\\\\]*$",
                                                "a|^b.$",
                                                "^\\w+@\\w+$",
                                                "[\\s]$"};
        schema = typed("string");
        schema.set("pattern", kPatterns[pick(std::size(kPatterns))]);
        if (chance(30)) schema.set("maxLength", static_cast<int>(pick(5)) + 5);
        if (chance(30)) schema.set("minLength", static_cast<int>(pick(3)));
        return schema;
      }
      case 4: {
        Json values = Json::array();
        for (size_t i = 0; i <= pick(4); ++i)
          values.push_back(chance(60)   ? Json("v" + std::to_string(pick(20)) + "\"\n\u00e9")
                           : chance(50) ? Json(static_cast<int>(pick(100)))
                                        : Json());
        schema = Json::object();
        schema.set("enum", values);
        return schema;
      }
      default:
        schema = typed("string");
        if (chance(40)) schema.set("minLength", static_cast<int>(pick(4)));
        if (chance(40)) schema.set("maxLength", static_cast<int>(pick(6)) + 4);
        return schema;
    }
  }

  Json schema(int depth, bool structured) {
    if (depth == 0) return scalar();
    Json result;
    switch (structured ? pick(6) : pick(12)) {
      case 0:
      case 1:
      case 2: {
        result = typed("object");
        Json properties = Json::object(), required = Json::array();
        for (size_t i = 0; i < 1 + pick(4); ++i) {
          const std::string name = kNames[pick(std::size(kNames))];
          if (properties.find(name)) continue;
          properties.set(name, schema(depth - 1, false));
          if (chance(40)) required.push_back(name);
        }
        result.set("properties", properties);
        if (chance(70)) result.set("required", required);
        if (chance(30)) result.set("additionalProperties", chance(50) ? Json(false) : scalar());
        return result;
      }
      case 3:
        result = typed("array");
        if (chance(80)) result.set("items", schema(depth - 1, false));
        if (chance(30)) {
          Json prefix = Json::array();
          for (size_t i = 0; i < 1 + pick(2); ++i) prefix.push_back(schema(depth - 1, false));
          result.set("prefixItems", prefix);
        }
        if (chance(40)) result.set("minItems", static_cast<int>(pick(3)));
        if (chance(40)) result.set("maxItems", static_cast<int>(pick(4)) + 2);
        return result;
      case 4: {
        Json branches = Json::array();
        for (size_t i = 0; i < 2 + pick(2); ++i) branches.push_back(schema(depth - 1, false));
        result = Json::object();
        result.set("anyOf", branches);
        return result;
      }
      case 5: {  // told apart by a tag
        Json branches = Json::array();
        for (int i = 0; i < 2; ++i) {
          Json tag = Json::object(), properties = Json::object(), branch = typed("object");
          tag.set("const", "k" + std::to_string(i));
          properties.set("tag", tag);
          properties.set("v", schema(depth - 1, false));
          Json required = Json::array();
          required.push_back("tag");
          branch.set("properties", properties);
          branch.set("required", required);
          branches.push_back(branch);
        }
        result = Json::object();
        result.set("oneOf", branches);
        return result;
      }
      case 6:
        result = Json::object();
        result.set("$ref", chance(50) ? "#/$defs/p" : "#/$defs/q");
        return result;
      default:
        return scalar();
    }
  }

  std::string space() {
    switch (pick(12)) {
      case 0:
        return " ";
      case 1:
        return "\n" + std::string(pick(65), ' ');
      default:
        return "";
    }
  }

  std::string write_string(const std::string& text) { return json_quote(text); }

  std::string random_string(size_t min, size_t max) {
    std::string out = "\"";
    const size_t length = min + pick(max - min + 1);
    static const char* const kChars[] = {
        "a",    "Z",       " ",       "/",       "{",      "]",      ",",          "\\n",
        "\\\"", "\\\\",    "\\/",     "\\u00e9", "\u00e9", "\u4e2d", "\U0001F60A", "\\ud83d\\uDE0A",
        "\x7f", "\\u0000", "\\uFFFF", "0"};
    for (size_t i = 0; i < length; ++i) out += kChars[pick(std::size(kChars))];
    return out + "\"";
  }

  std::string fail() {
    failed_ = true;
    return {};
  }

  std::string write_any(int depth) {
    switch (depth > 6 ? pick(4) : pick(6)) {
      case 0:
        return "null";
      case 1:
        return chance(50) ? "true" : "-0.5e-7";
      case 2:
        return std::to_string(static_cast<int64_t>(rng_() % 100000));
      case 3:
        return random_string(0, 5);
      case 4:
        return "[" + space() + write_any(depth + 1) + space() + "," + write_any(depth + 1) + "]";
      default:
        return "{" + random_string(1, 3) + space() + ":" + space() + write_any(depth + 1) + "}";
    }
  }

  std::string write(const Json& schema, int depth) {
    if (failed_ || depth > 20) return fail();
    if (schema.is_bool()) return schema.as_bool() ? write_any(depth) : fail();
    if (const Json* ref = schema.find("$ref"))
      return write(*root_.find("$defs")->find(ref->as_string().substr(8)), depth + 1);
    for (const char* key : {"anyOf", "oneOf"})
      if (const Json* branches = schema.find(key))
        return write(branches->items()[pick(branches->items().size())], depth + 1);
    if (const Json* constant = schema.find("const")) return constant->dump();
    if (const Json* values = schema.find("enum"))
      return values->items()[pick(values->items().size())].dump();
    const Json* type = schema.find("type");
    if (!type) return write_any(depth);
    const auto number = [&](const char* key, double otherwise) {
      return schema.find(key) ? schema.find(key)->as_double() : otherwise;
    };
    if (type->as_string() == "boolean") return chance(50) ? "true" : "false";
    if (type->as_string() == "integer") {
      const int64_t factor = static_cast<int64_t>(number("multipleOf", 1));
      const auto low =
          static_cast<int64_t>(std::ceil(number("minimum", -1e6) / static_cast<double>(factor)));
      const auto high =
          static_cast<int64_t>(std::floor(number("maximum", 1e6) / static_cast<double>(factor)));
      return std::to_string(
          (low + static_cast<int64_t>(rng_() % static_cast<uint64_t>(high - low + 1))) * factor);
    }
    if (type->as_string() == "number") {
      const double low = number("minimum", -200), high = number("exclusiveMaximum", 500);
      const double x = low + (high - low) * static_cast<double>(pick(1024)) / 1024;
      char text[64];
      std::snprintf(text, sizeof text, "%.10f", x);
      return text;
    }
    if (type->as_string() == "string") {
      if (const Json* pattern = schema.find("pattern")) {
        for (const char* candidate :
             {"ab", "abc", "foo", "bar", "\u00e9\u00e9", "", "xx", "12", "3.14", "bo", "me@you",
              "plain text", "a\u4e2d", "tail\n", "12345.1", "x\"y"}) {
          const auto regex = Regex::compile(pattern->as_string());
          size_t begin = 0, end = 0;
          const auto length = static_cast<double>(code_points(candidate));
          if (chance(40) && regex->find(candidate, 0, begin, end) &&
              length >= number("minLength", 0) && length <= number("maxLength", 99))
            return write_string(candidate);
        }
        return fail();
      }
      const auto min = static_cast<size_t>(number("minLength", 0));
      return random_string(min,
                           static_cast<size_t>(number("maxLength", static_cast<double>(min) + 6)));
    }
    std::string out;
    if (type->as_string() == "array") {
      const Json* prefix = schema.find("prefixItems");
      const size_t num_prefix = prefix ? prefix->items().size() : 0;
      const auto min = static_cast<size_t>(number("minItems", 0));
      const auto max = static_cast<size_t>(number("maxItems", static_cast<double>(min) + 3));
      const size_t size = depth > 8 ? min : min + pick(max - min + 1);
      for (size_t i = 0; i < size; ++i) {
        if (i > 0) out += space() + "," + space();
        const Json* items = schema.find("items");
        out += i < num_prefix ? write(prefix->items()[i], depth + 1)
                              : write(items ? *items : Json(true), depth + 1);
      }
      return "[" + space() + out + (out.empty() ? "" : space()) + "]";
    }
    const Json& properties = *schema.find("properties");
    const Json* required = schema.find("required");
    for (const auto& [name, property] : properties.members()) {
      const bool needed = required && std::find(required->items().begin(), required->items().end(),
                                                Json(name)) != required->items().end();
      if (!needed && chance(depth > 8 ? 95 : 50)) continue;
      if (!out.empty()) out += space() + "," + space();
      out += json_quote(name) + space() + ":" + space() + write(property, depth + 1);
    }
    const Json* additional = schema.find("additionalProperties");
    if (additional && !additional->is_bool())
      for (size_t i = 0; i < pick(3); ++i) {
        if (!out.empty()) out += ",";
        out += json_quote(kNames[pick(std::size(kNames))] + std::string("+") + std::to_string(i)) +
               ":" + write(*additional, depth + 1);
      }
    return "{" + space() + out + (out.empty() ? "" : space()) + "}";
  }

  static constexpr const char* kNames[] = {
      "a", "ab", "abc", "b", "name", "a\"b", "\u00e9t\u00e9", "n\n", "a/b", ""};
  std::mt19937 rng_;
  Json root_;
  bool failed_ = false;
};

}  // namespace invar::testing
