#include "base/keyed_hash.h"

#include <unistd.h>

#include <chrono>
#include <cstring>

namespace invar {

const HashSecret& hash_secret() {
  static const HashSecret secret = [] {
    HashSecret fresh{};
    if (::getentropy(&fresh, sizeof fresh) != 0) {
      // An old kernel or a sandbox: the clock and where we were loaded are the best there is.
      fresh.seed =
          static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
      fresh.multiplier = reinterpret_cast<uintptr_t>(&fresh) * 0x9E3779B97F4A7C15u ^ fresh.seed;
    }
    fresh.multiplier |= 1;
    return fresh;
  }();
  return secret;
}

uint64_t keyed_hash(std::string_view bytes) {
  const HashSecret secret = hash_secret();
  uint64_t hash = secret.seed;
  size_t i = 0;
  for (; i + 8 <= bytes.size(); i += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + i, 8);
    hash = keyed_mix(hash ^ word, secret.multiplier);
  }
  // The rest, at most seven bytes, and their number in the eighth.
  uint64_t tail = uint64_t{bytes.size() - i} << 56;
  if (i < bytes.size()) std::memcpy(&tail, bytes.data() + i, bytes.size() - i);
  hash = keyed_mix(hash ^ tail ^ 0x2545F4914F6CDD1Du, secret.multiplier);
  return hash ^ hash >> 29;
}

}  // namespace invar
