// TokenTrie: the bytes of a vocabulary's tokens as a tree, so that one walk beside an automaton
// finds all tokens that it allows. Made once per tokenizer and shared by all constraints.
//
// It also keeps the walks through the inside of JSON strings, which are the same for every schema
// and by far the longest: nearly all tokens may stand in a string.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "constraint/string_automaton.h"
#include "tokenizer/tokenizer.h"

namespace invar {

class TokenTrie {
 public:
  struct Node {
    uint32_t end;          // nodes (index, end) are below this one
    uint32_t first_token;  // tokens [first_token, next node's first_token) end here
    uint16_t depth;        // of the byte, from 0
    uint8_t byte;
  };

  // What tokens do from one state of a string: those that stay inside, by the characters they
  // begin, and the nodes at which the string is closed.
  struct StringWalk {
    struct Token {
      uint32_t chars, id;
    };
    struct Close {
      uint32_t chars, node;
    };
    std::vector<uint64_t> bits;  // all tokens that stay inside
    std::vector<Token> tokens;   // ascending by chars
    std::vector<Close> closes;   // ascending by chars
  };

  // `end_ids` end a reply: they are no text.
  static std::shared_ptr<const TokenTrie> make(const Tokenizer& tokenizer,
                                               std::span<const int32_t> end_ids);
  // For tests: the bytes of each id; no bytes: a special token.
  static std::shared_ptr<const TokenTrie> make(std::vector<std::string> token_bytes,
                                               std::span<const int32_t> end_ids);

  int32_t vocab_size() const { return static_cast<int32_t>(bytes_.size()); }
  size_t num_mask_words() const { return (bytes_.size() + 63) / 64; }
  const std::string& token_bytes(int32_t id) const { return bytes_[static_cast<size_t>(id)]; }
  const std::vector<int32_t>& end_ids() const { return end_ids_; }
  bool is_end(int32_t id) const;
  // Tokens without bytes that may stand in free text: specials that do not end a reply.
  const std::vector<int32_t>& special_ids() const { return special_ids_; }
  int32_t find_special(std::string_view text) const;  // -1: none

  // Nodes in order of a walk that goes down first; one more at the end closes first_token.
  std::span<const Node> nodes() const { return {nodes_.data(), nodes_.size() - 1}; }
  std::span<const uint32_t> tokens_at(uint32_t node) const {
    return {tokens_.data() + nodes_[node].first_token,
            nodes_[node + 1].first_token - nodes_[node].first_token};
  }
  size_t max_token_bytes() const { return max_token_bytes_; }
  int max_opens() const { return max_opens_; }                      // most '{' and '[' in one token
  const std::bitset<256>& spellable() const { return spellable_; }  // bytes that are tokens

  const StringWalk& string_walk(StringState state) const;

 private:
  void build();

  std::vector<std::string> bytes_;
  std::vector<int32_t> end_ids_, special_ids_;
  std::vector<std::pair<std::string, int32_t>> special_texts_;
  std::vector<Node> nodes_;
  std::vector<uint32_t> tokens_;
  size_t max_token_bytes_ = 0;
  int max_opens_ = 0;
  std::bitset<256> spellable_;
  mutable std::array<std::once_flag, kNumStringStates> walk_made_;
  mutable std::array<StringWalk, kNumStringStates> walks_;
};

}  // namespace invar
