#include "server/http/request_id.h"

#include <sys/random.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>

#include "base/check.h"

namespace invar::server {
namespace {

constexpr size_t kIdLength = 24;
constexpr size_t kMaxSentId = 128;
constexpr std::string_view kAlphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789";

}  // namespace

std::string new_id(std::string_view prefix) {
  std::string id(prefix);
  while (id.size() < prefix.size() + kIdLength) {
    uint8_t bytes[32];
    const ssize_t count = ::getrandom(bytes, sizeof bytes, 0);
    INVAR_CHECK(count > 0 || errno == EINTR, "getrandom fails: errno %d", errno);
    for (ssize_t i = 0; i < count && id.size() < prefix.size() + kIdLength; ++i)
      // 248 = 4 * 62: no letter is likelier than another.
      if (bytes[i] < 248) id += kAlphabet[bytes[i] % kAlphabet.size()];
  }
  return id;
}

std::string request_id_or_new(std::string_view sent) {
  const bool usable =
      !sent.empty() && sent.size() <= kMaxSentId &&
      std::all_of(sent.begin(), sent.end(), [](char c) {
        return kAlphabet.find(c) != std::string_view::npos || c == '.' || c == '_' || c == '-';
      });
  return usable ? std::string(sent) : new_id("req_");
}

}  // namespace invar::server
