#include "server/http/auth.h"

#include <openssl/crypto.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "base/file.h"
#include "base/hash.h"
#include "base/log.h"
#include "server/http/http_types.h"

namespace invar::server {
namespace {

constexpr size_t kMaxKeyFile = 1 << 20;
constexpr size_t kMaxKey = 1024;

std::string digest_of(std::string_view key) {
  return sha256_hex({reinterpret_cast<const uint8_t*>(key.data()), key.size()});
}

std::string_view trimmed(std::string_view text) {
  const auto is_space = [](char c) { return c == ' ' || c == '\t' || c == '\r'; };
  while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
  return text;
}

// What could not arrive in a header would lock everybody out.
bool is_key(std::string_view key) {
  return !key.empty() && key.size() <= kMaxKey &&
         std::all_of(key.begin(), key.end(), [](char c) { return c > 0x20 && c < 0x7F; });
}

// All digests are looked at, whichever is equal: time tells nothing about which, or how much of it.
bool contains(const std::vector<std::string>& digests, const std::string& digest) {
  int found = 0;
  for (const std::string& candidate : digests)
    found |= CRYPTO_memcmp(candidate.data(), digest.data(), digest.size()) == 0 ? 1 : 0;
  return found != 0;
}

}  // namespace

Result<std::unique_ptr<KeyStore>> KeyStore::open(const Options& options) {
  std::unique_ptr<KeyStore> store(new KeyStore);
  for (const std::string& key : options.keys) {
    if (!is_key(key))
      return invalid_argument("an API key must have 1 to %zu visible ASCII characters", kMaxKey);
    store->fixed_digests_.push_back(digest_of(key));
  }
  store->file_ = options.file;
  store->has_keys_ = !options.keys.empty() || !options.file.empty();
  if (!options.file.empty()) {
    const std::lock_guard lock(store->mutex_);
    store->stamp_ = stamp_of(options.file);
    INVAR_TRY_VOID(store->read_file_keys());
  }
  return store;
}

KeyStore::Stamp KeyStore::stamp_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_size, info.st_ino};
}

Result<void> KeyStore::read_file_keys() {
  struct stat info{};
  if (::stat(file_.c_str(), &info) != 0) return not_found("%s: cannot be read", file_.c_str());
  // A file of another user, such as root's secret that Kubernetes mounts, is ours to read by its
  // group.
  const bool is_ours = info.st_uid == ::geteuid();
  if ((info.st_mode & (is_ours ? 077 : 037)) != 0)
    return invalid_argument("%s: others may read it (mode %03o); chmod %s it", file_.c_str(),
                            info.st_mode & 0777, is_ours ? "600" : "440");
  INVAR_TRY(const std::string text, read_file(file_, kMaxKeyFile));
  std::vector<std::string> digests;
  int line_number = 0;
  for (std::string_view rest = text; !rest.empty();) {
    ++line_number;
    const size_t end = std::min(rest.find('\n'), rest.size());
    const std::string_view line = trimmed(rest.substr(0, end));
    rest.remove_prefix(std::min(end + 1, rest.size()));
    if (line.empty() || line.front() == '#') continue;
    if (!is_key(line))
      return invalid_argument("%s: line %d is no key of 1 to %zu visible ASCII characters",
                              file_.c_str(), line_number, kMaxKey);
    digests.push_back(digest_of(line));
  }
  if (digests.empty()) return invalid_argument("%s: there is no key in it", file_.c_str());
  file_digests_ = std::move(digests);
  return {};
}

void KeyStore::refresh(bool force) {
  if (file_.empty()) return;
  const Stamp now = stamp_of(file_);
  if (!force && now == stamp_) return;
  stamp_ = now;
  const Result<void> read = read_file_keys();
  file_is_bad_ = !read.ok();
  if (file_is_bad_) {
    // Neither the old keys nor none: what the operator wants is unknown.
    file_digests_.clear();
    log(LogLevel::kError, "API keys are closed to everybody: %s", read.error().message.c_str());
  } else {
    log(LogLevel::kInfo, "API key file read again, %zu keys", file_digests_.size());
  }
}

void KeyStore::reload() {
  const std::lock_guard lock(mutex_);
  refresh(true);
}

size_t KeyStore::num_keys() {
  const std::lock_guard lock(mutex_);
  return fixed_digests_.size() + file_digests_.size();
}

KeyStore::Check KeyStore::check(const std::string* authorization, const std::string* x_api_key) {
  if (!has_keys_) return {};
  std::string_view bearer;
  bool has_bearer = false;
  if (authorization != nullptr) {
    // Another scheme (Basic) is a wrong key, not a missing one.
    has_bearer = true;
    static constexpr std::string_view kScheme = "Bearer ";
    if (authorization->size() > kScheme.size() &&
        equal_ignoring_case(std::string_view(*authorization).substr(0, kScheme.size()), kScheme))
      bearer = trimmed(std::string_view(*authorization).substr(kScheme.size()));
  }
  const std::lock_guard lock(mutex_);
  refresh(false);
  if (file_is_bad_) return {Verdict::kUnavailable};
  if (!has_bearer && x_api_key == nullptr) return {Verdict::kMissing};
  if (has_bearer && x_api_key != nullptr && digest_of(bearer) != digest_of(*x_api_key))
    return {Verdict::kConflict};
  const std::string digest = digest_of(has_bearer ? bearer : std::string_view(*x_api_key));
  const bool fixed = contains(fixed_digests_, digest);
  const bool in_file = contains(file_digests_, digest);
  if (!fixed && !in_file) return {Verdict::kWrong};
  return {Verdict::kOk, digest};
}

}  // namespace invar::server
