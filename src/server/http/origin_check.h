// Which web pages may talk to us: the Host check against DNS rebinding, and CORS. Pure functions of
// header values.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "server/http/http_types.h"

namespace invar::server {

struct OriginPolicy {
  // On without keys on loopback: a page whose name was rebound to 127.0.0.1 sends its own name.
  bool check_host = false;
  std::vector<std::string> allowed_hosts = {};  // beside localhost, 127.0.0.1 and [::1]
  // "https://app.example", "localhost" (any port on the loopback names), or "*".
  std::vector<std::string> cors_origins = {};
};

// What is wrong with an entry of --cors-origins.
Result<void> check_cors_origin(std::string_view entry);

// "localhost:8080" -> "localhost", "[::1]:80" -> "[::1]"; lower case.
std::string host_without_port(std::string_view host);

bool host_allowed(const OriginPolicy& policy, std::string_view host);

enum class OriginKind {
  kNone,        // no page asks
  kSameOrigin,  // a page that we served
  kAllowed,     // listed
  kForeign,
};
// `origin`: the header's value or nullptr; `host`: of the Host header.
OriginKind classify_origin(const OriginPolicy& policy, const std::string* origin,
                           std::string_view host);

// Headers for every response to an allowed origin.
std::vector<Header> cors_headers(const OriginPolicy& policy, const std::string& origin);

// Of the answer to a preflight, beside those; `requested` is Access-Control-Request-Headers. Names
// that are none are left out.
std::vector<Header> preflight_headers(const std::string* requested);

}  // namespace invar::server
