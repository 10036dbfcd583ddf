// What every exchange over libcurl has in common: which protocols are spoken, whom a proxy may
// stand between, and how long we wait.
#pragma once

#include <curl/curl.h>

#include <memory>
#include <string>

namespace invar::cli {

// Before the first handle, from any thread.
void init_curl();

class CurlHeaders {
 public:
  void add(const std::string& line);
  curl_slist* get() const { return list_.get(); }

 private:
  struct Free {
    void operator()(curl_slist* list) const { curl_slist_free_all(list); }
  };
  std::unique_ptr<curl_slist, Free> list_;
};

// http and https only. A proxy must not see, nor answer, what is asked over plain http: it stays on
// this machine, or goes where we were told. Redirects are not followed. `headers` and `why`
// (CURL_ERROR_SIZE bytes, for the cause of a failure) outlive the exchange.
void set_up_curl(CURL* curl, const std::string& url, const CurlHeaders& headers, long stall_seconds,
                 char* why);

}  // namespace invar::cli
