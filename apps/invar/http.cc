#include "http.h"

#include <algorithm>
#include <cctype>
#include <memory>

#include "curl_setup.h"

namespace invar::cli {
namespace {

constexpr int kMaxRedirects = 10;
constexpr long kStallSeconds = 30;
constexpr size_t kMaxHeaderBytes = 256 << 10;

struct CurlFree {
  void operator()(char* text) const { curl_free(text); }
  void operator()(CURL* curl) const { curl_easy_cleanup(curl); }
  void operator()(CURLU* url) const { curl_url_cleanup(url); }
};
using UrlHandle = std::unique_ptr<CURLU, CurlFree>;

std::string url_part(CURLU* url, CURLUPart part, unsigned flags = 0) {
  char* text = nullptr;
  if (curl_url_get(url, part, &text, flags) != CURLUE_OK) return {};
  const std::unique_ptr<char, CurlFree> owner(text);
  return text;
}

UrlHandle parse_url(const std::string& text) {
  UrlHandle url(curl_url());
  if (curl_url_set(url.get(), CURLUPART_URL, text.c_str(), 0) != CURLUE_OK) return nullptr;
  return url;
}

bool is_loopback(const std::string& host) {
  return host == "localhost" || host == "[::1]" ||
         (host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos);
}

std::string lower(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

// One exchange, without redirects.
struct Exchange {
  HttpResponse response;
  const std::function<bool(const HttpResponse&)>* on_headers = nullptr;
  const std::function<bool(std::string_view)>* on_body = nullptr;
  size_t header_bytes = 0;
  bool headers_given = false;
  bool stopped = false;

  bool is_redirect() const {
    const long s = response.status;
    return (s == 301 || s == 302 || s == 303 || s == 307 || s == 308) &&
           !response.header("location").empty();
  }

  bool give_headers() {
    if (headers_given || is_redirect()) return true;
    headers_given = true;
    stopped = !(*on_headers)(response);
    return !stopped;
  }
};

size_t take_header(char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const std::string_view line(data, size * count);
  exchange.header_bytes += line.size();
  if (exchange.header_bytes > kMaxHeaderBytes) return 0;
  if (line.starts_with("HTTP/")) {
    // A new answer begins (an earlier one was 100 Continue or a proxy's).
    const size_t space = line.find(' ');
    exchange.response.headers.clear();
    exchange.response.status =
        space == std::string_view::npos ? 0 : std::atol(std::string(line.substr(space)).c_str());
  } else if (const size_t colon = line.find(':'); colon != std::string_view::npos) {
    std::string_view value = line.substr(colon + 1);
    while (!value.empty() && std::isspace(static_cast<unsigned char>(value.front())))
      value.remove_prefix(1);
    while (!value.empty() && std::isspace(static_cast<unsigned char>(value.back())))
      value.remove_suffix(1);
    exchange.response.headers[lower(std::string(line.substr(0, colon)))] = std::string(value);
  }
  return line.size();
}

size_t take_body(char* data, size_t size, size_t count, void* user) {
  auto& exchange = *static_cast<Exchange*>(user);
  const size_t bytes = size * count;
  if (exchange.is_redirect()) return bytes;
  if (!exchange.give_headers()) return 0;
  exchange.stopped = !(*exchange.on_body)(std::string_view(data, bytes));
  return exchange.stopped ? 0 : bytes;
}

Transfer transfer_kind(CURLcode code) {
  switch (code) {
    case CURLE_OK:
      return Transfer::kComplete;
    case CURLE_PARTIAL_FILE:
    case CURLE_RECV_ERROR:
    case CURLE_SEND_ERROR:
    case CURLE_GOT_NOTHING:
    case CURLE_OPERATION_TIMEDOUT:
    case CURLE_HTTP2:
    case CURLE_HTTP2_STREAM:
    case CURLE_WRITE_ERROR:
      return Transfer::kInterrupted;
    default:
      return Transfer::kNotReached;
  }
}

}  // namespace

std::string HttpResponse::header(const std::string& name) const {
  const auto found = headers.find(name);
  return found == headers.end() ? "" : found->second;
}

Result<std::string> url_origin(const std::string& text) {
  const UrlHandle url = parse_url(text);
  if (url == nullptr) return invalid_argument("'%s' is not a URL", text.c_str());
  const std::string scheme = url_part(url.get(), CURLUPART_SCHEME);
  const std::string host = lower(url_part(url.get(), CURLUPART_HOST));
  if (!url_part(url.get(), CURLUPART_USER).empty())
    return invalid_argument("%s: a URL with a user name is not taken; use HF_TOKEN", host.c_str());
  if (scheme != "https" && !(scheme == "http" && is_loopback(host)))
    return invalid_argument("%s://%s: only https is used (http only to this machine)",
                            scheme.c_str(), host.c_str());
  return scheme + "://" + host + ":" + url_part(url.get(), CURLUPART_PORT, CURLU_DEFAULT_PORT);
}

Result<std::string> resolve_url(const std::string& base, const std::string& relative) {
  UrlHandle url = parse_url(base);
  if (url == nullptr || curl_url_set(url.get(), CURLUPART_URL, relative.c_str(), 0) != CURLUE_OK)
    return invalid_argument("redirect to '%s', which is not a URL", relative.c_str());
  return url_part(url.get(), CURLUPART_URL);
}

std::string url_file_name(const std::string& text) {
  const UrlHandle url = parse_url(text);
  if (url == nullptr) return {};
  const std::string path = url_part(url.get(), CURLUPART_PATH, CURLU_URLDECODE);
  return path.substr(path.rfind('/') + 1);
}

std::string encode_path(std::string_view path) {
  std::string out;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (std::isalnum(byte) || std::string_view("-._~/").find(c) != std::string_view::npos) {
      out += c;
    } else {
      out += format("%%%02X", byte);
    }
  }
  return out;
}

Result<HttpResult> http_get(const HttpRequest& request,
                            const std::function<bool(const HttpResponse&)>& on_headers,
                            const std::function<bool(std::string_view)>& on_body) {
  init_curl();
  std::string url = request.url;
  HttpResult result;
  for (int hop = 0;; ++hop) {
    INVAR_TRY(const std::string origin, url_origin(url));
    CurlHeaders headers;
    for (const std::string& line : request.headers) headers.add(line);
    if (!request.credentials.token.empty() && origin == request.credentials.origin)
      headers.add("Authorization: Bearer " + request.credentials.token);

    Exchange exchange;
    exchange.on_headers = &on_headers;
    exchange.on_body = &on_body;
    exchange.response.url = url;
    exchange.response.first_headers = result.response.first_headers;
    const std::unique_ptr<CURL, CurlFree> curl(curl_easy_init());
    CURL* c = curl.get();
    char why[CURL_ERROR_SIZE] = "";
    set_up_curl(c, url, headers, kStallSeconds, why);
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, take_header);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, &exchange);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, take_body);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, &exchange);
    curl_easy_setopt(c, CURLOPT_BUFFERSIZE, 256L << 10);

    const CURLcode code = curl_easy_perform(c);
    if (code == CURLE_OK) exchange.give_headers();  // an answer without a body
    result.transfer = exchange.stopped ? Transfer::kStopped : transfer_kind(code);
    if (code != CURLE_OK) result.what = *why != '\0' ? why : curl_easy_strerror(code);
    result.response = std::move(exchange.response);
    if (result.transfer != Transfer::kComplete || exchange.headers_given) return result;

    if (hop == kMaxRedirects)
      return unavailable("%s: more than %d redirects", request.url.c_str(), kMaxRedirects);
    if (hop == 0) result.response.first_headers = result.response.headers;
    INVAR_TRY(std::string next, resolve_url(url, result.response.header("location")));
    if (origin.starts_with("https://") && !next.starts_with("https://"))
      return unavailable("%s redirects to plain http, which is refused", origin.c_str());
    url = std::move(next);
  }
}

Result<std::string> http_get_text(const HttpRequest& request, size_t max_bytes, long* status) {
  std::string text;
  bool too_large = false;
  INVAR_TRY(const HttpResult result, http_get(
                                         request, [](const HttpResponse&) { return true; },
                                         [&](std::string_view bytes) {
                                           too_large = text.size() + bytes.size() > max_bytes;
                                           if (!too_large) text += bytes;
                                           return !too_large;
                                         }));
  if (status != nullptr) *status = result.response.status;
  if (too_large)
    return unavailable("%s answered with more than %zu bytes", request.url.c_str(), max_bytes);
  if (result.transfer != Transfer::kComplete)
    return unavailable("%s: %s", request.url.c_str(), result.what.c_str());
  if (result.response.status != 200)
    return unavailable("%s answered %ld", request.url.c_str(), result.response.status);
  return text;
}

}  // namespace invar::cli
