// Keys that all have one hash under the hash of GCC's standard library (Murmur, a fixed seed): what
// an attacker would send. Tables keyed by strangers must stay fast on them.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

namespace invar::testing {

// 16 bytes each, any byte values. Two 8-byte blocks: for each first block the second one is solved
// for, so that the state after both is the same.
inline std::vector<std::string> colliding_keys(size_t count) {
  constexpr uint64_t kMul = 0xc6a4a7935bd1e995u, kSeed = 0xc70f6907u;
  uint64_t inverse = 1;  // of kMul modulo 2^64, by Newton's method
  for (int i = 0; i < 6; ++i) inverse *= 2 - kMul * inverse;
  const auto fold = [](uint64_t v) { return v ^ v >> 47; };  // its own inverse
  std::vector<std::string> keys;
  for (uint64_t first = 1; first <= count; ++first) {
    const uint64_t state = ((kSeed ^ 16 * kMul) ^ fold(first * kMul) * kMul) * kMul;
    const uint64_t second = fold(state * inverse) * inverse;
    std::string key(16, '\0');
    std::memcpy(key.data(), &first, 8);
    std::memcpy(key.data() + 8, &second, 8);
    keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace invar::testing
