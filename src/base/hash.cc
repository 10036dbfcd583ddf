#include "base/hash.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace invar {

struct Sha256::State {
  EVP_MD_CTX* context = EVP_MD_CTX_new();
  ~State() { EVP_MD_CTX_free(context); }
};

Sha256::Sha256() : state_(std::make_unique<State>()) {
  INVAR_CHECK(EVP_DigestInit_ex(state_->context, EVP_sha256(), nullptr) == 1, "no SHA-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const uint8_t> bytes) {
  INVAR_CHECK(EVP_DigestUpdate(state_->context, bytes.data(), bytes.size()) == 1, "SHA-256 update");
}

std::string Sha256::hex_digest() {
  uint8_t digest[EVP_MAX_MD_SIZE];
  unsigned length = 0;
  INVAR_CHECK(EVP_DigestFinal_ex(state_->context, digest, &length) == 1, "SHA-256 final");
  static constexpr char kHex[] = "0123456789abcdef";
  std::string hex;
  for (unsigned i = 0; i < length; ++i) {
    hex += kHex[digest[i] >> 4];
    hex += kHex[digest[i] & 15];
  }
  return hex;
}

}  // namespace invar
