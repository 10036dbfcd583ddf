#include "server/http/http_types.h"

#include <algorithm>

namespace invar::server {
namespace {

char lower(char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + ('a' - 'A')) : c; }

}  // namespace

bool equal_ignoring_case(std::string_view a, std::string_view b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(),
                    [](char x, char y) { return lower(x) == lower(y); });
}

const std::string* find_header(const std::vector<Header>& headers, std::string_view name) {
  for (const Header& header : headers)
    if (equal_ignoring_case(header.name, name)) return &header.value;
  return nullptr;
}

Response json_response(std::string body) {
  Response response;
  response.body = std::move(body);
  return response;
}

Response error_response(ApiStyle style, const ApiError& error, std::string_view request_id) {
  Response response;
  response.status = error.status;
  response.error_code = error.code;
  response.body = error_json(style, error, request_id);
  if (error.status == 401) response.headers.push_back({"WWW-Authenticate", "Bearer"});
  int64_t retry_after_ms = error.retry_after_ms;
  if (retry_after_ms == 0 && (error.status == 429 || error.status == 503)) retry_after_ms = 1000;
  if (retry_after_ms > 0) {
    const int64_t seconds = std::clamp<int64_t>((retry_after_ms + 999) / 1000, 1, 60);
    response.headers.push_back({"Retry-After", std::to_string(seconds)});
    response.headers.push_back({"retry-after-ms", std::to_string(retry_after_ms)});
  }
  if (!error.should_retry) response.headers.push_back({"x-should-retry", "false"});
  return response;
}

}  // namespace invar::server
