// Eight lanes of 64 bits take turns over the words, so that the multiplications do not wait for one
// another. Each step turns a lane one-to-one into the next for a given word, and a word one-to-one
// for a given lane: what differs in one place stays different to the end. The product before the
// rotation is what keeps two flipped bits from undoing each other: without it, bit 34 of a word and
// bit 63 of the lane's next word would.
#include "base/block_hash.h"

#include <bit>
#include <cstring>

namespace invar {
namespace {

static_assert(std::endian::native == std::endian::little, "words are read as they stand");

constexpr int kLanes = 8;
constexpr size_t kStripe = kLanes * sizeof(uint64_t);
// Odd; bits as good as random.
constexpr uint64_t kFactor = 0xD1B54A32D192ED03u;
constexpr uint64_t kWordFactor = 0x9E6C63D0876A9A47u;

inline uint64_t step(uint64_t lane, uint64_t word) {
  return std::rotl(lane ^ word * kWordFactor, 31) * kFactor;
}

}  // namespace

uint64_t block_hash(std::span<const uint8_t> bytes) {
  uint64_t lanes[kLanes];
  for (int i = 0; i < kLanes; ++i) lanes[i] = kFactor * static_cast<uint64_t>(2 * i + 1);
  const auto add = [&](const uint8_t* stripe) {
    uint64_t words[kLanes];
    std::memcpy(words, stripe, kStripe);
    for (int i = 0; i < kLanes; ++i) lanes[i] = step(lanes[i], words[i]);
  };
  size_t at = 0;
  for (; at + kStripe <= bytes.size(); at += kStripe) add(bytes.data() + at);
  if (at < bytes.size()) {
    uint8_t last[kStripe] = {};
    std::memcpy(last, bytes.data() + at, bytes.size() - at);
    add(last);
  }
  uint64_t hash = step(kFactor, bytes.size());  // zeros at the end count
  for (const uint64_t lane : lanes) hash = step(hash, lane);
  hash ^= hash >> 32;
  hash *= kFactor;
  return hash ^ hash >> 29;
}

}  // namespace invar
