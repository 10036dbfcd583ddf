// Vocabulary: the texts, bytes and kinds of all token ids, and lookup from text or bytes to an id.
// Also the printable alphabet in which byte-level vocabularies are written. Knows nothing of
// merges.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace invar {

// Text -> id by open addressing. The keys are not copied; they live in the vocabulary's arena.
class StringIndex {
 public:
  void reserve(size_t num_keys);
  // False when the key was there already; the first id stays.
  bool insert(std::string_view key, int32_t id);
  void assign(std::string_view key, int32_t id);  // the last id stays
  int32_t find(std::string_view key) const;       // -1: none
  size_t max_key_bytes() const { return max_key_bytes_; }

 private:
  struct Slot {
    const char* data = nullptr;
    uint32_t size = 0;
    uint32_t hash = 0;
    int32_t id = -1;  // -1: free
  };
  Slot& slot_for(std::string_view key, uint64_t hash);
  std::vector<Slot> slots_;
  size_t num_keys_ = 0;
  size_t max_key_bytes_ = 0;
};

// The printable alphabet of byte-level vocabularies (GPT-2): each byte is one code point.
namespace byte_alphabet {
uint32_t code_point_of(uint8_t byte);
// `text` with each code point turned into its byte; false when one is outside the alphabet.
bool to_bytes(std::string_view text, std::string& bytes);
}  // namespace byte_alphabet

// "<0xE2>" -> 0xE2; -1 for every other text (two upper-case hex digits, nothing else).
int byte_of_byte_token(std::string_view text);

class Vocabulary {
 public:
  static constexpr int64_t kMaxTokens = 4 * 1024 * 1024;

  struct Token {
    std::string_view text;   // as in the vocabulary
    std::string_view bytes;  // what it adds to the output
    TokenKind kind = TokenKind::kUnused;
  };

  void resize(size_t num_tokens) { tokens_.resize(num_tokens); }
  size_t size() const { return tokens_.size(); }
  bool has(int32_t id) const { return id >= 0 && static_cast<size_t>(id) < tokens_.size(); }
  const Token& operator[](int32_t id) const { return tokens_[static_cast<size_t>(id)]; }

  // Copies both strings into the arena. Does not touch the index.
  void set(int32_t id, std::string_view text, std::string_view bytes, TokenKind kind);
  void set_kind(int32_t id, TokenKind kind) { tokens_[static_cast<size_t>(id)].kind = kind; }

  StringIndex by_text;

 private:
  std::string_view store(std::string_view text);
  std::vector<Token> tokens_;
  std::vector<std::unique_ptr<char[]>> blocks_;
  size_t block_left_ = 0;
  char* block_next_ = nullptr;
};

}  // namespace invar
