#include "server/http/json_body.h"

namespace invar::server {

std::optional<ApiError> parse_json_body(std::string_view body, Json& json) {
  if (body.empty()) return api_error("invalid_json", "the body is empty; send a JSON object");
  Result<Json> parsed = Json::parse(body);
  if (!parsed) return api_error("invalid_json", "the body is no JSON: " + parsed.error().message);
  if (!parsed->is_object())
    return api_error("invalid_json",
                     std::string("the body is ") + parsed->kind_name() + ", not a JSON object");
  json = *std::move(parsed);
  return std::nullopt;
}

}  // namespace invar::server
