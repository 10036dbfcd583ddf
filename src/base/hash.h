// SHA-256 (OpenSSL's) as lower-case hex, and the token hash that replies carry.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>

namespace invar {

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;
  void update(std::span<const uint8_t> bytes);
  std::string hex_digest();  // ends the computation

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string sha256_hex(std::span<const uint8_t> bytes);

// SHA-256 over the ids, each as 4 bytes little-endian, in order (specs/api.md, token_sha).
std::string token_sha(std::span<const int32_t> token_ids);

}  // namespace invar
