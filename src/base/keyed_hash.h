// Hashes for tables whose keys a stranger chose: tensor names of a file, keys of a request, tokens
// of a vocabulary. The standard library's hash is fixed, so that a file of a few MB with keys that
// all collide would keep a table busy for hours; this one has a secret that is new in each process.
// Nothing may depend on its values, nor on the order of a table that uses it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace invar {

struct HashSecret {
  uint64_t seed, multiplier;  // the multiplier is odd
};
const HashSecret& hash_secret();

// Both halves of the product: the upper one depends on all bits of `word`, and on the secret.
inline uint64_t keyed_mix(uint64_t word, uint64_t multiplier) {
  const auto product = static_cast<unsigned __int128>(word) * multiplier;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

uint64_t keyed_hash(std::string_view bytes);

// For std::unordered_map and _set, with std::equal_to<>: look-up by string_view makes no string.
struct KeyedHash {
  using is_transparent = void;
  size_t operator()(std::string_view bytes) const { return keyed_hash(bytes); }
};

}  // namespace invar
