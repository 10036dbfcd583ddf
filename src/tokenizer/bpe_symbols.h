// What bpe.cc and bpe_long.cc share: the merging of very long words, and small rules about kinds.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tokenizer/bpe.h"

namespace invar {

// Whether a token may come out of ordinary text. Control tokens may not, whatever the vocabulary's
// merges or scores say: text that a user wrote must never become one. Nor may byte tokens: the text
// "<0x41>" is six characters, not an A.
inline bool can_come_from_merge(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined;
}

std::string byte_token_text(uint8_t byte);  // 0xE2 -> "<0xE2>"

// Symbols by byte position: ids[begin] is the symbol's id (kUnknownSymbol allowed), kNoSymbol
// inside it; sizes[] holds its size at its first and at its last byte, so both neighbours are
// found.
inline constexpr int32_t kNoSymbol = -2;

using FindMerge = std::function<Merge(uint32_t begin, uint32_t left_size, int32_t left_id,
                                      uint32_t right_size, int32_t right_id)>;

// Applies all merges, in the order of merge_by_heap, to a word of any length.
void merge_long_word(const FindMerge& find_merge, std::vector<uint32_t>& sizes,
                     std::vector<int32_t>& ids);

}  // namespace invar
