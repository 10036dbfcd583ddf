#include "curl_setup.h"

namespace invar::cli {
namespace {
constexpr long kConnectSeconds = 15;
}

void init_curl() {
  static const CURLcode code = curl_global_init(CURL_GLOBAL_DEFAULT);
  (void)code;
}

void CurlHeaders::add(const std::string& line) {
  list_.reset(curl_slist_append(list_.release(), line.c_str()));
}

void set_up_curl(CURL* curl, const std::string& url, const CurlHeaders& headers, long stall_seconds,
                 char* why) {
  curl_easy_setopt(curl, CURLOPT_URL, url.c_str());
  curl_easy_setopt(curl, CURLOPT_PROTOCOLS_STR, "http,https");
  curl_easy_setopt(curl, CURLOPT_HTTPHEADER, headers.get());
  curl_easy_setopt(curl, CURLOPT_USERAGENT, "invar/" INVAR_VERSION);
  curl_easy_setopt(curl, CURLOPT_NOSIGNAL, 1L);
  curl_easy_setopt(curl, CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
  // No byte in that time: given up.
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_LIMIT, 1L);
  curl_easy_setopt(curl, CURLOPT_LOW_SPEED_TIME, stall_seconds);
  curl_easy_setopt(curl, CURLOPT_ERRORBUFFER, why);
  if (url.starts_with("http://")) curl_easy_setopt(curl, CURLOPT_NOPROXY, "*");
}

}  // namespace invar::cli
