// Deterministic noise and the two transcendental functions the sampler decides with. Everything is
// made of IEEE additions, multiplications, divisions and integer operations, so that a seed gives
// the same tokens on every machine and compiler.
#pragma once

#include <bit>
#include <cstdint>

namespace invar {

// A bijection of 64 bits that spreads every input bit over all output bits.
inline uint64_t mix64(uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9u;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Noise of one draw: bits(id) is a function of (seed, position, id) alone, whoever asks in whatever
// order.
class NoiseKey {
 public:
  NoiseKey(uint64_t seed, uint64_t position)
      : key_(mix64(mix64(seed + 0x9e3779b97f4a7c15u) + (position + 1) * 0xd1342543de82ef95u)) {}
  uint64_t bits(int32_t id) const {
    return mix64(key_ +
                 (static_cast<uint64_t>(static_cast<uint32_t>(id)) + 1) * 0x9e3779b97f4a7c15u);
  }

 private:
  uint64_t key_;
};

// Natural logarithm of a positive normal number, within 2 ulp: with m in [sqrt(1/2), sqrt(2)),
// log m = 2 artanh((m - 1) / (m + 1)), whose series in s^2 <= 0.0295 needs ten terms.
inline double exact_log(double x) {
  uint64_t bits = std::bit_cast<uint64_t>(x);
  int exponent = static_cast<int>(bits >> 52) - 1023;
  double m = std::bit_cast<double>((bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double s = (m - 1) / (m + 1), z = s * s;
  double series = 1.0 / 21;
  for (int k = 19; k >= 1; k -= 2) series = series * z + 1.0 / k;
  return exponent * 0.6931471805599453 + 2 * s * series;
}

// e^x for x <= 0, within 2e-7 of its value; 0 below -87 (the smallest normal float).
inline float exp_nonpositive(float x) {
  const float clamped = x < -87.0f ? -87.0f : x;
  const int n = static_cast<int>(clamped * 1.44269504f - 0.5f);  // rounds to nearest: clamped <= 0
  const float nf = static_cast<float>(n);
  const float r = (clamped - nf * 0.693359375f) - nf * -2.12194440e-4f;  // ln 2 in two parts
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const float scaled = p * std::bit_cast<float>((n + 127) << 23);
  return x < -87.0f ? 0.0f : scaled;
}

}  // namespace invar
