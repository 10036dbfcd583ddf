#include "server/fields.h"

#include <cmath>

#include "base/result.h"

namespace invar::server {
namespace {

std::string shown(double value) { return format("%.6g", value); }

std::string shown(const Json& value) {
  return value.is_array() || value.is_object() ? std::string(value.kind_name())
                                               : quote_value(value.dump());
}

}  // namespace

Json warnings_json(const std::vector<Warning>& warnings) {
  Json list = Json::array();
  for (const Warning& warning : warnings) {
    Json entry = Json::object();
    entry.set("code", warning.code);
    entry.set("param", warning.param.empty() ? Json() : Json(warning.param));
    entry.set("message", warning.message);
    list.push_back(std::move(entry));
  }
  return list;
}

void warn(std::vector<Warning>& warnings, Warning warning) {
  if (warnings.size() < kMaxWarnings) warnings.push_back(std::move(warning));
}

void Fields::fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::fail(std::string_view code, std::string_view name, std::string_view what) {
  const std::string path = path_of(name);
  fail(api_error(code, path + " " + std::string(what), path));
}

const Json* Fields::find(std::string_view name) {
  known_.emplace(name);
  const Json* found = object_.find(name);
  return found == nullptr || found->is_null() ? nullptr : found;
}

std::string_view Fields::first_of(std::initializer_list<std::string_view> names) {
  std::string_view first;
  for (const std::string_view name : names)
    if (find(name) != nullptr && first.empty()) first = name;
  return first;
}

void Fields::ignore(std::initializer_list<std::string_view> names) {
  for (const std::string_view name : names) known_.emplace(name);
}

void Fields::not_built(std::string_view name, std::optional<double> neutral) {
  const Json* value = find(name);
  if (value == nullptr) return;
  const bool asks_nothing = (value->is_bool() && !value->as_bool()) ||
                            (value->is_number() && value->as_double() == neutral.value_or(0)) ||
                            (value->is_array() && value->items().empty()) ||
                            (value->is_object() && value->members().empty()) ||
                            (value->is_string() && value->as_string().empty());
  if (!asks_nothing)
    fail("unsupported_parameter", name, "is not supported by this server; leave it out");
}

bool Fields::boolean(std::string_view name, bool fallback) {
  const Json* value = find(name);
  if (value == nullptr) return fallback;
  if (value->is_bool()) return value->as_bool();
  wrong_kind(name, "true or false", *value);
  return fallback;
}

bool Fields::whole(const Json& value, int64_t& out) {
  if (value.is_int()) {
    out = value.as_int();
    return true;
  }
  if (!value.is_number()) return false;
  const double number = value.as_double();
  if (number != std::floor(number) || std::fabs(number) >= 9.2e18) return false;
  out = static_cast<int64_t>(number);
  return true;
}

int64_t Fields::integer(std::string_view name, int64_t low, int64_t high, int64_t fallback) {
  const Json* value = find(name);
  if (value == nullptr) return fallback;
  int64_t number = 0;
  if (!whole(*value, number)) {
    wrong_kind(name, "an integer", *value);
    return fallback;
  }
  if (number >= low && number <= high) return number;
  fail("out_of_range", name,
       format("must be between %lld and %lld, got %lld", static_cast<long long>(low),
              static_cast<long long>(high), static_cast<long long>(number)));
  return fallback;
}

double Fields::number(std::string_view name, double low, double high, double fallback) {
  const Json* value = find(name);
  if (value == nullptr) return fallback;
  if (!value->is_number()) {
    wrong_kind(name, "a number", *value);
    return fallback;
  }
  const double number = value->as_double();
  if (number >= low && number <= high) return number;
  fail("out_of_range", name,
       "must be between " + shown(low) + " and " + shown(high) + ", got " + shown(number));
  return fallback;
}

std::optional<std::string> Fields::text(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->as_string();
  wrong_kind(name, "a string", *value);
  return std::nullopt;
}

std::string Fields::text(std::string_view name, std::string fallback) {
  return text(name).value_or(std::move(fallback));
}

const Json* Fields::array(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_array()) return value;
  wrong_kind(name, "an array", *value);
  return nullptr;
}

const Json* Fields::object(std::string_view name) {
  const Json* value = find(name);
  if (value == nullptr || value->is_object()) return value;
  wrong_kind(name, "an object", *value);
  return nullptr;
}

void Fields::finish(bool strict, std::vector<Warning>& warnings) {
  for (const Json::Member& member : object_.members()) {
    if (known_.find(member.first) != known_.end()) continue;
    const std::string path = path_of(member.first);
    if (strict) {
      return fail(api_error("unknown_field", quote_value(path) + " is not a known field", path));
    } else {
      warn(warnings, {"ignored_field", path, "unknown field ignored"});
    }
  }
}

void Fields::wrong_kind(std::string_view name, std::string_view wanted, const Json& found) {
  fail("invalid_type", name, "must be " + std::string(wanted) + ", got " + shown(found));
}

}  // namespace invar::server
