// API keys: who may use the server. Keys are kept as SHA-256 digests and compared in constant time
// with all of them; a key file is read again when it changes. Knows no socket.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace invar::server {

class KeyStore {
 public:
  struct Options {
    std::vector<std::string> keys = {};
    std::string file = {};  // one key a line, '#' comments; only its owner may read it
  };
  // Without keys and file: a store that lets everybody in. Errors say what is wrong with a key or
  // the file, never a key.
  static Result<std::unique_ptr<KeyStore>> open(const Options& options);

  enum class Verdict { kOk, kMissing, kWrong, kConflict, kUnavailable };
  struct Check {
    Verdict verdict = Verdict::kOk;
    std::string digest = {};  // of the key that was accepted, hex
  };
  // The values of the two headers, nullptr when absent. Reads the file again if it changed; a bad
  // file closes the store (kUnavailable) until it is good again.
  Check check(const std::string* authorization, const std::string* x_api_key);

  void reload();  // now, whatever the file's time says (SIGHUP)
  bool has_keys() const { return has_keys_; }
  size_t num_keys();

 private:
  struct Stamp {
    int64_t seconds = 0, nanoseconds = 0, size = -1;
    uint64_t inode = 0;
    bool operator==(const Stamp&) const = default;
  };
  KeyStore() = default;
  static Stamp stamp_of(const std::string& path);
  Result<void> read_file_keys();  // mutex_ held
  void refresh(bool force);       // mutex_ held

  std::string file_;
  bool has_keys_ = false;
  std::mutex mutex_;
  std::vector<std::string> fixed_digests_, file_digests_;
  Stamp stamp_;
  bool file_is_bad_ = false;
};

}  // namespace invar::server
