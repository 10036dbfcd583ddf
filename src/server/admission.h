// Admission: how many generating requests there may be, together and of one API key. Requests
// beyond it are refused at once (429), so that a client can go elsewhere.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "server/http/router.h"

namespace invar::server {

struct AdmissionLimits {
  int max_running = 4;  // requests beyond these wait
  int max_waiting = 256;
  uint64_t max_waiting_bytes = 64 << 20;  // of all bodies, once a request would have to wait
  int max_of_key = 0;                     // running and waiting, of one key; 0: no limit
};

class Admission {
 public:
  explicit Admission(const AdmissionLimits& limits) : limits_(limits) {}

  // A place, given back when it is destroyed.
  class Place {
   public:
    Place() = default;
    Place(Admission& owner, std::string key, uint64_t bytes)
        : owner_(&owner), key_(std::move(key)), bytes_(bytes) {}
    Place(Place&& other) noexcept { *this = std::move(other); }
    Place& operator=(Place&& other) noexcept;
    ~Place() { leave(); }

   private:
    void leave();
    Admission* owner_ = nullptr;
    std::string key_;
    uint64_t bytes_ = 0;
  };
  // Waits a moment: who asks again when the last byte came is faster than the handler that sent it.
  // The error of a full queue (queue_full) or of a key that has all it may have (key_limit).
  std::optional<ApiError> enter(const std::string& key_digest, uint64_t bytes, Place& place);

  // `handler` for a request that got a place, which it keeps until the handler returns.
  Handler guard(Handler handler);

 private:
  std::optional<ApiError> refusal(const std::string& key_digest, uint64_t bytes) const;

  const AdmissionLimits limits_;
  std::mutex mutex_;
  std::condition_variable left_;
  int num_requests_ = 0;
  uint64_t bytes_ = 0;
  std::map<std::string, int> of_key_;
};

}  // namespace invar::server
