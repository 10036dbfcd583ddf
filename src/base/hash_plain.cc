// base/hash.h in plain C++ (FIPS 180-4), for builds without OpenSSL (INVAR_CORE_ONLY); hash.cc
// takes its place elsewhere. A few times slower, which only tests of cross builds notice.
#include <bit>
#include <cstring>

#include "base/hash.h"

namespace invar {
namespace {

// The first 32 bits of the fractions of the cube roots of the first 64 primes.
constexpr uint32_t kRound[64] = {
    0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5,
    0xd807aa98, 0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174,
    0xe49b69c1, 0xefbe4786, 0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da,
    0x983e5152, 0xa831c66d, 0xb00327c8, 0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967,
    0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13, 0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85,
    0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819, 0xd6990624, 0xf40e3585, 0x106aa070,
    0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a, 0x5b9cca4f, 0x682e6ff3,
    0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7, 0xc67178f2};

constexpr size_t kBlock = 64;

}  // namespace

struct Sha256::State {
  // The same of the square roots of the first 8 primes.
  uint32_t h[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                   0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  uint8_t block[kBlock] = {};
  uint64_t num_bytes = 0;

  void mix() {
    uint32_t w[64];
    for (size_t i = 0; i < 16; ++i)
      w[i] = uint32_t{block[4 * i]} << 24 | uint32_t{block[4 * i + 1]} << 16 |
             uint32_t{block[4 * i + 2]} << 8 | uint32_t{block[4 * i + 3]};
    for (size_t i = 16; i < 64; ++i) {
      const uint32_t a = w[i - 15], b = w[i - 2];
      w[i] = w[i - 16] + w[i - 7] + (std::rotr(a, 7) ^ std::rotr(a, 18) ^ a >> 3) +
             (std::rotr(b, 17) ^ std::rotr(b, 19) ^ b >> 10);
    }
    uint32_t v[8];
    std::memcpy(v, h, sizeof v);
    for (size_t i = 0; i < 64; ++i) {
      const uint32_t a = v[0], e = v[4];
      const uint32_t first = v[7] + (std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25)) +
                             ((e & v[5]) ^ (~e & v[6])) + kRound[i] + w[i];
      const uint32_t second = (std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22)) +
                              ((a & v[1]) ^ (a & v[2]) ^ (v[1] & v[2]));
      std::memmove(v + 1, v, 7 * sizeof v[0]);
      v[4] += first;
      v[0] = first + second;
    }
    for (size_t i = 0; i < 8; ++i) h[i] += v[i];
  }

  void add(uint8_t byte) {
    block[num_bytes++ % kBlock] = byte;
    if (num_bytes % kBlock == 0) mix();
  }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const uint8_t> bytes) {
  for (const uint8_t byte : bytes) state_->add(byte);
}

std::string Sha256::hex_digest() {
  const uint64_t num_bits = state_->num_bytes * 8;
  state_->add(0x80);
  while (state_->num_bytes % kBlock != kBlock - 8) state_->add(0);
  for (int shift = 56; shift >= 0; shift -= 8) state_->add(static_cast<uint8_t>(num_bits >> shift));
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  for (const uint32_t word : state_->h)
    for (int shift = 28; shift >= 0; shift -= 4) hex += kHex[word >> shift & 15];
  return hex;
}

}  // namespace invar
