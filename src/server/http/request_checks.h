// What is decided from a request's head, before its body is read: route, method, key, Host and
// Origin, content type, encoding, size, and whether the engine takes requests. Pure but for the key
// store's file.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/http/auth.h"
#include "server/http/lifecycle.h"
#include "server/http/origin_check.h"
#include "server/http/request_parser.h"
#include "server/http/router.h"

namespace invar::server {

struct CheckPolicy {
  const Router* router = nullptr;
  KeyStore* keys = nullptr;
  const Lifecycle* lifecycle = nullptr;
  OriginPolicy origin = {};
  uint64_t max_body_bytes = 0;
};

struct HeadVerdict {
  Router::Match match = {};
  ApiStyle style = ApiStyle::kOpenAi;
  std::string key_digest = {};
  std::optional<ApiError> error = {};
  bool preflight = false;            // answer 204 with `headers`
  std::vector<Header> headers = {};  // for the response, whatever it is: CORS, Allow
};

// In the order of specs/api.md, 2.1: the first failure is the answer.
HeadVerdict check_head(const CheckPolicy& policy, const RequestHead& head);

}  // namespace invar::server
