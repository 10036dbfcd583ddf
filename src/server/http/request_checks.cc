#include "server/http/request_checks.h"

namespace invar::server {
namespace {

std::optional<ApiError> check_key(const CheckPolicy& policy, const RequestHead& head,
                                  std::string& digest) {
  KeyStore::Check check = policy.keys->check(find_header(head.headers, "Authorization"),
                                             find_header(head.headers, "x-api-key"));
  switch (check.verdict) {
    case KeyStore::Verdict::kOk:
      digest = std::move(check.digest);
      return std::nullopt;
    case KeyStore::Verdict::kMissing:
      return api_error("invalid_api_key",
                       "no API key: send 'Authorization: Bearer KEY' or 'x-api-key: KEY'");
    case KeyStore::Verdict::kConflict:
      return api_error("invalid_api_key", "Authorization and x-api-key hold different keys");
    case KeyStore::Verdict::kUnavailable: {
      ApiError error = api_error("keys_unavailable", "the server's API keys cannot be read now");
      error.retry_after_ms = 5000;
      return error;
    }
    case KeyStore::Verdict::kWrong:
      break;
  }
  return api_error("invalid_api_key", "the API key is not known here");
}

// application/json or application/...+json; parameters do not matter.
bool is_json_type(std::string_view type) {
  type = type.substr(0, type.find(';'));
  while (type.ends_with(' ') || type.ends_with('\t')) type.remove_suffix(1);
  static constexpr std::string_view kApplication = "application/", kSuffix = "+json";
  if (type.size() <= kApplication.size() ||
      !equal_ignoring_case(type.substr(0, kApplication.size()), kApplication))
    return false;
  type.remove_prefix(kApplication.size());
  return equal_ignoring_case(type, "json") ||
         (type.size() > kSuffix.size() &&
          equal_ignoring_case(type.substr(type.size() - kSuffix.size()), kSuffix));
}

std::optional<ApiError> check_body_headers(const CheckPolicy& policy, const RequestHead& head) {
  if (!head.has_body()) return std::nullopt;
  const std::string* type = find_header(head.headers, "Content-Type");
  if (head.method == "POST" && (type == nullptr || !is_json_type(*type)))
    return api_error("unsupported_media_type",
                     "send the header 'Content-Type: application/json'" +
                         (type == nullptr ? std::string(" (there is none)")
                                          : " (it is " + quote_value(*type) + ")"));
  const std::string* encoding = find_header(head.headers, "Content-Encoding");
  if (encoding != nullptr && !encoding->empty() && !equal_ignoring_case(*encoding, "identity"))
    return api_error("unsupported_encoding", "Content-Encoding " + quote_value(*encoding) +
                                                 " is not supported; send the "
                                                 "body as it is");
  if (!head.chunked && head.content_length > policy.max_body_bytes)
    return api_error("body_too_large",
                     format("the body is larger than %llu bytes",
                            static_cast<unsigned long long>(policy.max_body_bytes)));
  return std::nullopt;
}

ApiError unknown_route(const RequestHead& head, const Router::Match& match) {
  std::string message = "there is no route " + quote_value(head.path);
  if (!match.hint.empty()) message += "; " + match.hint;
  return api_error("route_not_found", std::move(message));
}

}  // namespace

HeadVerdict check_head(const CheckPolicy& policy, const RequestHead& head) {
  HeadVerdict verdict;
  const auto refuse = [&verdict](ApiError error) {
    verdict.error = std::move(error);
    return std::move(verdict);
  };
  verdict.match = policy.router->find(head.method, head.path);
  verdict.style = api_style(verdict.match.path);
  const Route* route = verdict.match.route;

  // A page may read refusals too.
  const std::string* origin = find_header(head.headers, "Origin");
  const OriginKind origin_kind = classify_origin(policy.origin, origin, head.host);
  if (origin_kind == OriginKind::kAllowed) verdict.headers = cors_headers(policy.origin, *origin);

  if (!verdict.match.known_path) return refuse(unknown_route(head, verdict.match));
  const bool options = head.method == "OPTIONS";
  if (route == nullptr || options) verdict.headers.push_back({"Allow", verdict.match.allow});
  if (route == nullptr && !options)
    return refuse(api_error("method_not_allowed", "method " + quote_value(head.method) +
                                                      " is none of " + verdict.match.allow));
  if (!options && !route->open)
    if (std::optional<ApiError> error = check_key(policy, head, verdict.key_digest))
      return refuse(*std::move(error));
  // With keys a page under a false name knows none; open routes tell nothing that matters.
  if (!policy.keys->has_keys() && !host_allowed(policy.origin, head.host))
    return refuse(api_error(
        "host_not_allowed",
        "Host " + quote_value(head.host) + " is not allowed here; --allowed-hosts adds names"));
  const bool reads_only = head.method == "GET" || head.method == "HEAD";
  if (origin_kind == OriginKind::kForeign && !reads_only)
    return refuse(api_error("origin_not_allowed", "Origin " + quote_value(*origin) +
                                                      " is not allowed here; --cors-origins adds "
                                                      "origins"));
  if (options) {
    verdict.preflight = true;
    if (origin_kind == OriginKind::kAllowed)
      for (Header& header :
           preflight_headers(find_header(head.headers, "Access-Control-Request-Headers")))
        verdict.headers.push_back(std::move(header));
    return verdict;
  }
  if (std::optional<ApiError> error = check_body_headers(policy, head))
    return refuse(*std::move(error));
  if (route->needs_engine)
    if (std::optional<ApiError> error = policy.lifecycle->refusal())
      return refuse(*std::move(error));
  return verdict;
}

}  // namespace invar::server
