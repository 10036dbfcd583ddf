#include "server/http/origin_check.h"

#include <algorithm>

namespace invar::server {
namespace {

constexpr std::string_view kLoopbackNames[] = {"localhost", "127.0.0.1", "[::1]"};
constexpr size_t kMaxHeaderName = 64;

std::string lower_case(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c + ('a' - 'A'));
  return out;
}

bool is_loopback_name(std::string_view host) {
  return std::find(std::begin(kLoopbackNames), std::end(kLoopbackNames), host) !=
         std::end(kLoopbackNames);
}

// "http://localhost:3000" -> "localhost:3000"; "" when it is no http origin.
std::string_view authority(std::string_view origin) {
  for (const std::string_view scheme : {"http://", "https://"})
    if (origin.starts_with(scheme)) return origin.substr(scheme.size());
  return {};
}

bool lists_everything(const OriginPolicy& policy) {
  return std::find(policy.cors_origins.begin(), policy.cors_origins.end(), "*") !=
         policy.cors_origins.end();
}

}  // namespace

Result<void> check_cors_origin(std::string_view entry) {
  const std::string_view host = authority(entry);
  const bool is_origin = !host.empty() && std::all_of(host.begin(), host.end(), [](char c) {
    return c > 0x20 && c < 0x7F && std::string_view("/?#@\"'\\,").find(c) == std::string_view::npos;
  });
  if (entry == "*" || entry == "localhost" || is_origin) return {};
  return invalid_argument("'%s' is no origin such as https://app.example, localhost or *",
                          std::string(entry).c_str());
}

std::string host_without_port(std::string_view host) {
  const size_t bracket = host.starts_with('[') ? host.find(']') : 0;
  const size_t colon = host.find(':', bracket == std::string_view::npos ? 0 : bracket);
  return lower_case(host.substr(0, colon));
}

bool host_allowed(const OriginPolicy& policy, std::string_view host) {
  if (!policy.check_host) return true;
  const std::string name = host_without_port(host);
  return is_loopback_name(name) ||
         std::any_of(policy.allowed_hosts.begin(), policy.allowed_hosts.end(),
                     [&](const std::string& allowed) {
                       return !name.empty() && host_without_port(allowed) == name;
                     });
}

OriginKind classify_origin(const OriginPolicy& policy, const std::string* origin,
                           std::string_view host) {
  if (origin == nullptr) return OriginKind::kNone;
  const std::string name = lower_case(*origin);
  const std::string_view from = authority(name);
  // https as well: a proxy in front of us may speak TLS.
  if (!from.empty() && from == lower_case(host)) return OriginKind::kSameOrigin;
  for (const std::string& allowed : policy.cors_origins) {
    if (allowed == "*" || lower_case(allowed) == name) return OriginKind::kAllowed;
    if (allowed == "localhost" && !from.empty() && is_loopback_name(host_without_port(from)))
      return OriginKind::kAllowed;
  }
  return OriginKind::kForeign;
}

std::vector<Header> cors_headers(const OriginPolicy& policy, const std::string& origin) {
  return {{"Access-Control-Allow-Origin", lists_everything(policy) ? "*" : origin},
          {"Vary", "Origin"},
          {"Access-Control-Expose-Headers", "X-Request-Id, request-id, Retry-After"}};
}

std::vector<Header> preflight_headers(const std::string* requested) {
  std::vector<Header> headers = {{"Access-Control-Allow-Methods", "GET, POST, DELETE, OPTIONS"},
                                 {"Access-Control-Max-Age", "600"}};
  std::string names;
  std::string_view rest = requested == nullptr ? std::string_view() : *requested;
  while (!rest.empty()) {
    const size_t comma = std::min(rest.find(','), rest.size());
    std::string_view name = rest.substr(0, comma);
    rest.remove_prefix(std::min(comma + 1, rest.size()));
    while (!name.empty() && name.front() == ' ') name.remove_prefix(1);
    while (!name.empty() && name.back() == ' ') name.remove_suffix(1);
    const bool is_name = !name.empty() && name.size() <= kMaxHeaderName &&
                         std::all_of(name.begin(), name.end(), [](char c) {
                           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
                                  (c >= 'A' && c <= 'Z') || c == '-';
                         });
    if (is_name) names += (names.empty() ? "" : ", ") + std::string(name);
  }
  if (!names.empty()) headers.push_back({"Access-Control-Allow-Headers", names});
  return headers;
}

}  // namespace invar::server
