// BpeModel: one word -> token ids, by merges. Two ways to know a merge: from a list of ranked pairs
// (gpt2, tokenizer.json) or from the score of the token that the pair spells (SentencePiece). Does
// no cutting of text into words; see pre_tokenizer.h.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/keyed_hash.h"
#include "tokenizer/vocabulary.h"

namespace invar {

// What applying a merge gives; the lowest rank goes first, the leftmost of equal ones.
struct Merge {
  static constexpr uint32_t kNone = 0xFFFFFFFF;
  uint32_t rank = kNone;
  int32_t id = -1;
};

// (left id, right id) -> Merge by open addressing.
class MergeTable {
 public:
  void reserve(size_t num_pairs);
  void assign(int32_t left, int32_t right, Merge merge);  // the last one of a pair stays
  Merge find(int32_t left, int32_t right) const {
    if (slots_.empty()) return {};
    const uint64_t key = key_of(left, right);
    for (size_t i = index_of(key);; i = (i + 1) & mask_) {
      if (slots_[i].key == key) return slots_[i].merge;
      if (slots_[i].key == kFree) return {};
    }
  }

 private:
  static constexpr uint64_t kFree = ~uint64_t{0};
  struct Slot {
    uint64_t key = kFree;
    Merge merge;
  };
  static uint64_t key_of(int32_t left, int32_t right) {
    return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
  }
  // The upper bits of a product with a secret odd factor: few pairs collide whatever the file
  // holds, and it is the cheapest hash there is.
  size_t index_of(uint64_t key) const {
    return static_cast<size_t>(key * secret_multiplier_ >> shift_);
  }
  uint64_t secret_multiplier_ = hash_secret().multiplier;
  std::vector<Slot> slots_;
  size_t mask_ = 0;
  int shift_ = 0;  // 64 less the number of bits of mask_
  size_t num_pairs_ = 0;
};

// Memory that one encode() call works in; never shared by two at a time.
class BpeScratch {
 public:
  BpeScratch();

 private:
  friend class BpeModel;
  struct Symbol {
    uint32_t begin, size;  // bytes of the word
    int32_t id;
    Merge next;  // the merge with the symbol to the right
    uint32_t previous_index, next_index;
  };
  // Words that were encoded before: a fixed table, a newer word takes the place of an older one.
  struct CachedWord {
    static constexpr size_t kMaxBytes = 24, kMaxIds = 8;
    uint8_t num_bytes = 0, num_ids = 0;
    char bytes[kMaxBytes];
    int32_t ids[kMaxIds];
  };
  static constexpr size_t kCachedWords = 16384;
  std::vector<CachedWord> cache_;
  std::vector<Symbol> symbols_;
  std::vector<uint64_t> heap_;
};

class BpeModel {
 public:
  explicit BpeModel(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

  bool byte_level = true;      // symbols are bytes; else characters
  bool by_score = false;       // merges from rank_of_id and the texts, not from `merges`
  bool ignore_merges = false;  // a word that is a token is that token
  bool byte_fallback = false;  // <0xHH> for what is not in the vocabulary
  bool fuse_unk = false;       // neighbouring unknown characters are one unknown token
  int32_t unk_id = -1;
  MergeTable merges;
  std::vector<uint32_t> rank_of_id;  // by_score

  // Called once when all fields are set: fills the derived tables below.
  void finish();

  void encode_word(std::string_view word, BpeScratch& scratch, std::vector<int32_t>& out) const;

 private:
  using Symbol = BpeScratch::Symbol;
  static constexpr int32_t kUnknownSymbol = -1;  // not in the vocabulary, resolved when emitted

  std::string without_missing_bytes(std::string_view word) const;
  void encode_whole_word(std::string_view word, BpeScratch& scratch,
                         std::vector<int32_t>& out) const;
  void encode_piece(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const;
  void merge_piece(std::string_view piece, BpeScratch& scratch, std::vector<int32_t>& out) const;
  // Calls add(begin, size, id) for each symbol before any merge, in order; together they cover
  // piece.
  template <typename Add>
  void first_symbols(std::string_view piece, const Add& add) const;
  void merge_by_scan(std::string_view piece, std::vector<Symbol>& symbols) const;
  void merge_by_heap(std::string_view piece, BpeScratch& scratch) const;
  void emit(std::string_view text, int32_t id, std::vector<int32_t>& out) const;
  Merge find_merge(std::string_view piece, uint32_t begin, uint32_t left_size, int32_t left_id,
                   uint32_t right_size, int32_t right_id) const;
  bool may_join(uint32_t left, uint32_t right) const;
  static size_t join_bit(uint32_t left, uint32_t right);

  const Vocabulary& vocabulary_;
  std::array<int32_t, 256> byte_ids_;  // byte level: the byte's own token; else <0xHH>; -1: none
  StringIndex by_bytes_;               // byte level with ignore_merges
  bool all_bytes_ = false;
  // Which symbols (bytes or code points) stand side by side in some token, as a hashed bit set.
  // Where two do not, no merge can ever cross, so a long word may be cut there with the same
  // result.
  std::vector<uint64_t> join_bits_;
};

}  // namespace invar
