// What is made of Sha256, whichever of hash.cc and hash_plain.cc this build has.
#include "base/hash.h"

namespace invar {

std::string sha256_hex(std::span<const uint8_t> bytes) {
  Sha256 hash;
  hash.update(bytes);
  return hash.hex_digest();
}

std::string token_sha(std::span<const int32_t> token_ids) {
  Sha256 hash;
  for (const int32_t id : token_ids) {
    const auto u = static_cast<uint32_t>(id);
    const uint8_t bytes[4] = {static_cast<uint8_t>(u), static_cast<uint8_t>(u >> 8),
                              static_cast<uint8_t>(u >> 16), static_cast<uint8_t>(u >> 24)};
    hash.update(bytes);
  }
  return hash.hex_digest();
}

}  // namespace invar
