// Deterministic noise, and an exponential that compilers can vectorise. Integer operations and IEEE
// additions and multiplications only, so that a seed gives the same tokens on every machine and
// compiler. Logarithms come from base/math.h.
#pragma once

#include <cstdint>

namespace invar {

// Functions that files for several instruction sets use are always inline, and free of library
// functions, so that none of one set is linked in place of another's.
#define INVAR_IN_EVERY_SET __attribute__((always_inline)) inline

// A bijection of 64 bits that spreads every input bit over all output bits.
INVAR_IN_EVERY_SET uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// The noise of neighbouring ids is that of states one step apart.
inline constexpr uint64_t kNoiseStep = 0x9e3779b97f4a7c15u;
INVAR_IN_EVERY_SET uint64_t noise_state(uint64_t key, int32_t id) {
  return key + (static_cast<uint64_t>(static_cast<uint32_t>(id)) + 1) * kNoiseStep;
}

// Noise of one draw: bits(id) is a function of (seed, position, id) alone, whoever asks in whatever
// order.
class NoiseKey {
 public:
  NoiseKey(uint64_t seed, uint64_t position)
      : key_(mix64(mix64(seed + 0x9e3779b97f4a7c15u) + (position + 1) * 0xd1342543de82ef95u)) {}
  uint64_t bits(int32_t id) const { return mix64(noise_state(key_, id)); }
  uint64_t key() const { return key_; }

 private:
  uint64_t key_;
};

// e^x for -88 <= x <= 0, within 2e-7 of its value. Below -87.7 the scale 2^n becomes the bits of 0,
// so the result is 0.
INVAR_IN_EVERY_SET float exp_clamped(float x) {
  const int n = static_cast<int>(x * 1.44269504f - 0.5f);  // rounds to nearest: x <= 0
  const float nf = static_cast<float>(n);
  const float r = (x - nf * 0.693359375f) - nf * -2.12194440e-4f;  // ln 2 in two parts
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * __builtin_bit_cast(float, (n + 127) << 23);
}

// e^x for every x <= 0.
inline float exp_nonpositive(float x) { return exp_clamped(x < -88.0f ? -88.0f : x); }

}  // namespace invar
