#include "server/http/error_body.h"

#include <algorithm>

#include "base/check.h"
#include "base/json.h"
#include "base/log.h"
#include "base/utf8.h"

namespace invar::server {
namespace {

constexpr size_t kMaxMessage = 500;
constexpr size_t kMaxQuoted = 80;

struct ErrorKind {
  const char* code;
  int status;
  const char* type;
  const char* messages_type;
};

constexpr const char* kInvalid = "invalid_request_error";

// Every code that we send (specs/api.md, 2.2). Those the specification has no row for are last.
constexpr ErrorKind kErrorKinds[] = {
    {"invalid_json", 400, kInvalid, kInvalid},
    {"missing_field", 400, kInvalid, kInvalid},
    {"invalid_type", 400, kInvalid, kInvalid},
    {"invalid_value", 400, kInvalid, kInvalid},
    {"out_of_range", 400, kInvalid, kInvalid},
    {"unsupported_parameter", 400, kInvalid, kInvalid},
    {"unknown_field", 400, kInvalid, kInvalid},
    {"unsupported_content", 400, kInvalid, kInvalid},
    {"unsupported_schema", 400, kInvalid, kInvalid},
    {"schema_too_complex", 400, kInvalid, kInvalid},
    {"template_error", 400, kInvalid, kInvalid},
    {"no_chat_template", 400, kInvalid, kInvalid},
    {"template_not_allowed", 400, kInvalid, kInvalid},
    {"context_length_exceeded", 400, kInvalid, kInvalid},
    {"request_too_large_for_memory", 400, kInvalid, kInvalid},
    {"invalid_api_key", 401, "authentication_error", "authentication_error"},
    {"host_not_allowed", 403, "permission_error", "permission_error"},
    {"origin_not_allowed", 403, "permission_error", "permission_error"},
    {"route_not_found", 404, "not_found_error", "not_found_error"},
    {"model_not_found", 404, "not_found_error", "not_found_error"},
    {"request_not_found", 404, "not_found_error", "not_found_error"},
    {"method_not_allowed", 405, kInvalid, kInvalid},
    {"request_timeout", 408, kInvalid, kInvalid},
    {"body_too_large", 413, kInvalid, "request_too_large"},
    {"uri_too_long", 414, kInvalid, kInvalid},
    {"unsupported_media_type", 415, kInvalid, kInvalid},
    {"unsupported_encoding", 415, kInvalid, kInvalid},
    {"queue_full", 429, "rate_limit_error", "rate_limit_error"},
    {"key_limit", 429, "rate_limit_error", "rate_limit_error"},
    {"headers_too_large", 431, kInvalid, kInvalid},
    {"request_cancelled", 499, "cancelled_error", "api_error"},
    {"engine_error", 500, "server_error", "api_error"},
    {"nan_logits", 500, "server_error", "api_error"},
    {"model_loading", 503, "overloaded_error", "overloaded_error"},
    {"draining", 503, "overloaded_error", "overloaded_error"},
    {"no_memory", 503, "overloaded_error", "overloaded_error"},
    {"device_lost", 503, "overloaded_error", "overloaded_error"},

    {"malformed_request", 400, kInvalid, kInvalid},   // breaks HTTP itself
    {"expectation_failed", 417, kInvalid, kInvalid},  // Expect other than 100-continue
    {"http_version", 505, kInvalid, kInvalid},        // not HTTP/1.0 or 1.1
    {"client_too_slow", 499, "cancelled_error", "api_error"},
    {"keys_unavailable", 503, "overloaded_error", "overloaded_error"},  // bad key file
    {"no_slot", 503, "overloaded_error", "overloaded_error"},           // llama.cpp's /slots
    {"too_many_connections", 503, "overloaded_error", "overloaded_error"},
};

// At most `max_characters` whole characters.
std::string shortened(std::string_view text, size_t max_characters) {
  size_t end = 0;
  for (size_t i = 0; i < max_characters && end < text.size(); ++i)
    end += utf8_prefix(text.substr(end)).num_bytes;
  return std::string(text.substr(0, end));
}

}  // namespace

ApiStyle api_style(std::string_view path) {
  return path == "/v1/messages" || path.starts_with("/v1/messages/") ? ApiStyle::kMessages
                                                                     : ApiStyle::kOpenAi;
}

ApiError api_error(std::string_view code, std::string message, std::string param) {
  const auto* kind = std::find_if(std::begin(kErrorKinds), std::end(kErrorKinds),
                                  [&](const ErrorKind& k) { return code == k.code; });
  INVAR_CHECK(kind != std::end(kErrorKinds), "no error code '%s'", std::string(code).c_str());
  ApiError error;
  error.status = kind->status;
  error.type = kind->type;
  error.messages_type = kind->messages_type;
  error.code = kind->code;
  error.message = std::move(message);
  error.param = std::move(param);
  return error;
}

std::string error_json(ApiStyle style, const ApiError& error, std::string_view request_id) {
  Json inner = Json::object();
  const std::string message = shortened(error.message, kMaxMessage);
  Json outer = Json::object();
  if (style == ApiStyle::kMessages) {
    inner.set("type", error.messages_type);
    inner.set("message", message);
    outer.set("type", "error");
    outer.set("error", std::move(inner));
    outer.set("request_id", request_id);
    return outer.dump();
  }
  inner.set("message", message);
  inner.set("type", error.type);
  inner.set("param", error.param.empty() ? Json() : Json(error.param));
  inner.set("code", error.code);
  if (error.num_prompt_tokens) inner.set("n_prompt_tokens", *error.num_prompt_tokens);
  if (error.context) inner.set("n_ctx", *error.context);
  outer.set("error", std::move(inner));
  return outer.dump();
}

std::string quote_value(std::string_view text) {
  const std::string part = shortened(text, kMaxQuoted);
  return "'" + escape_control(part) + (part.size() < text.size() ? "..." : "") + "'";
}

}  // namespace invar::server
