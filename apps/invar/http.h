// GET over HTTPS with libcurl. Decides what may be asked at all: https, or http to this machine,
// and a token for one origin only. Knows nothing of models.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace invar::cli {

// "https://host:port", the unit that a token belongs to. Errors: not a URL, http to another
// machine, a user name in the URL.
Result<std::string> url_origin(const std::string& url);
Result<std::string> resolve_url(const std::string& base, const std::string& relative);
// The last component of the URL's path, percent-decoded.
std::string url_file_name(const std::string& url);
// Percent-encodes everything but letters, digits, "-._~" and "/".
std::string encode_path(std::string_view path);

// A token, sent as "Authorization: Bearer" to `origin` and nowhere else.
struct Credentials {
  std::string origin;
  std::string token;
};

struct HttpResponse {
  long status = 0;
  std::string url;                             // after redirects
  std::map<std::string, std::string> headers;  // lower-case names
  // Headers of the first answer that redirected: the hub says there what the file is.
  std::map<std::string, std::string> first_headers;
  std::string header(const std::string& name) const;
};

enum class Transfer {
  kComplete,
  kStopped,      // a callback said so
  kNotReached,   // no connection: nobody there, no such name, a bad certificate
  kInterrupted,  // the connection broke or stalled after it stood
};

struct HttpResult {
  Transfer transfer = Transfer::kComplete;
  std::string what;  // why, unless kComplete
  HttpResponse response;
};

struct HttpRequest {
  std::string url;
  std::vector<std::string> headers;  // "Range: bytes=5-"
  Credentials credentials;
};

// Follows up to ten redirects, each checked like the first URL. `on_headers` gets the final
// answer's headers before its body; either callback returns false to stop. Errors: a URL that must
// not be asked.
Result<HttpResult> http_get(const HttpRequest& request,
                            const std::function<bool(const HttpResponse&)>& on_headers,
                            const std::function<bool(std::string_view)>& on_body);

// A small document. Errors in words for people, "host answered 404" among them; `status` gets the
// HTTP status when there was one.
Result<std::string> http_get_text(const HttpRequest& request, size_t max_bytes, long* status);

}  // namespace invar::cli
