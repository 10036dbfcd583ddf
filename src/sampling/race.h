// The draw itself: Gumbel-max over ids, the largest of score + noise(seed, position, id).
//
// -log(1 - w) >= w, so the noise -log(-log(1 - w)) is at most -log(w), which the leading zeros of w
// bound. That turns nearly every id away before a logarithm, and by the largest score of a block
// even before more than its noise bits are known. Who is turned away could not have won, so neither
// this nor the order of ids can change the winner.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "base/math.h"
#include "sampling/random.h"
#include "sampling/scan.h"

namespace invar {

class Race {
 public:
  Race(uint64_t seed, uint64_t position) : key_(seed, position) {}

  void enter(float score, int32_t id) {
    const uint64_t bits = key_.bits(id);
    if (most(score, std::countl_zero(bits | 0x800u)) < bound_) return;
    const double w = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;  // in (0, 1), exact
    const double value = static_cast<double>(score) - log_f64(-log_f64(1.0 - w));
    if (value > best_ || (value == best_ && id < id_)) {
      best_ = value;
      id_ = id;
      bound_ = static_cast<float>(value) - 1e-3f;  // slack for float rounding of the bound
    }
  }

  // Enters the ids [first, first + count), none of whose scores is above `largest`; score(id) is
  // asked for those only that may win.
  template <typename Score>
  void enter_block(float largest, int32_t first, int32_t count, const Score& score) {
    const int zeros = zeros_needed(largest);
    if (zeros > kMaxZeros) return;
    const uint64_t limit = ~uint64_t{0} >> zeros;
    if (count == static_cast<int32_t>(kScanBlock) && !scan().any_noise(key_.key(), first, limit))
      return;
    for (int32_t id = first; id < first + count; ++id)
      if (key_.bits(id) <= limit) enter(score(id), id);
  }

  int32_t winner() const { return id_; }

 private:
  static constexpr int kMaxZeros = 52;
  static constexpr float kLn2 = 0.6931473f;

  // No id of this score whose bits begin with so many zeros comes to more.
  static float most(float score, int zeros) { return score + static_cast<float>(zeros + 1) * kLn2; }
  // The fewest leading zeros with which enter() would not turn away an id of this score, and so
  // none of a lower one. Found by its own test, from a guess that is too low.
  int zeros_needed(float score) const {
    const float gap = (bound_ - score) / kLn2;
    if (gap > kMaxZeros + 8) return kMaxZeros + 1;
    int zeros = gap > 4 ? static_cast<int>(gap) - 3 : 0;
    while (zeros <= kMaxZeros && most(score, zeros) < bound_) ++zeros;
    return zeros;
  }

  NoiseKey key_;
  double best_ = -std::numeric_limits<double>::infinity();
  float bound_ = -std::numeric_limits<float>::infinity();
  int32_t id_ = std::numeric_limits<int32_t>::max();
};

}  // namespace invar
