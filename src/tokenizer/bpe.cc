// Merging of words up to some thousand bytes, and the word cache. Longer ones: bpe_long.cc.
#include "tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "base/keyed_hash.h"
#include "tokenizer/bpe_symbols.h"
#include "tokenizer/unicode.h"

namespace invar {
namespace {

constexpr size_t kScanSymbols = 32;       // up to here a scan beats a heap
constexpr size_t kLongPieceBytes = 4096;  // from here a heap's cache misses cost more than buckets
constexpr size_t kCutBytes = 48;          // words longer than this are cut where nothing can merge
constexpr size_t kByteJoinBits = 1 << 16;
constexpr size_t kCharJoinBits = 1 << 22;

}  // namespace

void MergeTable::reserve(size_t num_pairs) {
  size_t num_slots = 16;
  while (num_slots < num_pairs * 2) num_slots *= 2;
  if (num_slots <= slots_.size()) return;
  std::vector<Slot> old(num_slots);
  old.swap(slots_);
  mask_ = num_slots - 1;
  shift_ = std::countl_zero(mask_);
  num_pairs_ = 0;
  for (const Slot& slot : old)
    if (slot.key != kFree)
      assign(static_cast<int32_t>(slot.key >> 32), static_cast<int32_t>(slot.key), slot.merge);
}

void MergeTable::assign(int32_t left, int32_t right, Merge merge) {
  INVAR_CHECK(left >= 0 && right >= 0, "pair %d, %d", left, right);
  if ((num_pairs_ + 1) * 2 > slots_.size()) reserve((num_pairs_ + 1) * 2);
  const uint64_t key = key_of(left, right);
  size_t i = index_of(key);
  while (slots_[i].key != kFree && slots_[i].key != key) i = (i + 1) & mask_;
  if (slots_[i].key == kFree) ++num_pairs_;
  slots_[i] = {key, merge};
}

BpeScratch::BpeScratch() : cache_(kCachedWords) {}

size_t BpeModel::join_bit(uint32_t left, uint32_t right) {
  return static_cast<size_t>((left * 0x9E3779B97F4A7C15u ^ right * 0xC2B2AE3D27D4EB4Fu) >> 40) %
         kCharJoinBits;
}

bool BpeModel::may_join(uint32_t left, uint32_t right) const {
  const size_t bit = byte_level ? left << 8 | right : join_bit(left, right);
  return join_bits_[bit / 64] >> bit % 64 & 1;
}

void BpeModel::finish() {
  join_bits_.assign((byte_level ? kByteJoinBits : kCharJoinBits) / 64, 0);
  const auto set_bit = [&](size_t bit) { join_bits_[bit / 64] |= uint64_t{1} << bit % 64; };
  byte_ids_.fill(-1);
  if (byte_level && ignore_merges) by_bytes_.reserve(vocabulary_.size());
  for (int32_t id = 0; vocabulary_.has(id); ++id) {
    const Vocabulary::Token& token = vocabulary_[id];
    if (!can_come_from_merge(token.kind)) continue;
    const std::string_view text = byte_level ? token.bytes : token.text;
    if (byte_level) {
      for (size_t i = 1; i < text.size(); ++i)
        set_bit(size_t{static_cast<uint8_t>(text[i - 1])} << 8 | static_cast<uint8_t>(text[i]));
      if (token.kind != TokenKind::kNormal) continue;
      if (ignore_merges) by_bytes_.insert(text, id);
    } else {
      uint32_t left = 0;
      for (size_t pos = 0; pos < text.size();) {
        const DecodedChar c = decode_char(text, pos);
        if (pos > 0) set_bit(join_bit(left, c.code_point));
        left = c.code_point;
        pos += c.num_bytes;
      }
    }
  }
  // A byte-level vocabulary that lacks a byte must not answer it with a control token.
  if (byte_level && vocabulary_.has(unk_id) && vocabulary_[unk_id].kind == TokenKind::kSpecial)
    unk_id = -1;
  all_bytes_ = true;
  for (int byte = 0; byte < 256; ++byte) {
    std::string text = byte_token_text(static_cast<uint8_t>(byte));
    if (byte_level) {
      text.clear();
      append_utf8(text, byte_alphabet::code_point_of(static_cast<uint8_t>(byte)));
    }
    int32_t& id = byte_ids_[static_cast<size_t>(byte)];
    id = vocabulary_.by_text.find(text);
    // A byte is ordinary text, which must never become a control token.
    if (id >= 0 && vocabulary_[id].kind == TokenKind::kSpecial) id = -1;
    all_bytes_ &= id >= 0;
  }
}

Merge BpeModel::find_merge(std::string_view piece, uint32_t begin, uint32_t left_size,
                           int32_t left_id, uint32_t right_size, int32_t right_id) const {
  if (!by_score) return merges.find(left_id, right_id);
  // Neighbours are side by side in the text, so what they spell needs no concatenation.
  const int32_t id = vocabulary_.by_text.find(piece.substr(begin, size_t{left_size} + right_size));
  if (id < 0 || !can_come_from_merge(vocabulary_[id].kind)) return {};
  return {rank_of_id[static_cast<size_t>(id)], id};
}

void BpeModel::emit(std::string_view text, int32_t id, std::vector<int32_t>& out) const {
  if (id >= 0) {
    out.push_back(id);
    return;
  }
  const bool bytes_known = byte_fallback && std::all_of(text.begin(), text.end(), [&](char c) {
                             return byte_ids_[static_cast<uint8_t>(c)] >= 0;
                           });
  if (bytes_known) {
    for (const char c : text) out.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    return;
  }
  if (!byte_level && decode_char(text, 0).code_point == kInvalidCodePoint) {
    const int32_t replacement = vocabulary_.by_text.find("\xEF\xBF\xBD");
    if (replacement >= 0) {
      out.push_back(replacement);
      return;
    }
  }
  if (unk_id >= 0) out.push_back(unk_id);
}

template <typename Add>
void BpeModel::first_symbols(std::string_view piece, const Add& add) const {
  if (byte_level) {
    for (uint32_t pos = 0; pos < piece.size(); ++pos) {
      const int32_t id = byte_ids_[static_cast<uint8_t>(piece[pos])];
      add(pos, 1, id >= 0 ? id : unk_id >= 0 ? unk_id : kUnknownSymbol);
    }
    return;
  }
  std::string_view known_char;  // the last character looked up: runs of one are common
  int32_t known_id = -1;
  uint32_t unk_begin = 0, unk_size = 0;
  for (uint32_t pos = 0; pos < piece.size();) {
    const uint32_t size = decode_char(piece, pos).num_bytes;
    const std::string_view text = piece.substr(pos, size);
    if (text != known_char) {
      known_char = text;
      known_id = vocabulary_.by_text.find(text);
      if (known_id >= 0 && !can_come_from_merge(vocabulary_[known_id].kind)) known_id = -1;
    }
    const bool unknown = known_id < 0 && !by_score;
    // Hugging Face resolves unknown characters before it merges: bytes, else <unk>.
    const bool as_bytes = unknown && byte_fallback && all_bytes_;
    if (unk_size > 0 && (!unknown || as_bytes || !fuse_unk)) {
      add(unk_begin, unk_size, unk_id);
      unk_size = 0;
    }
    if (as_bytes) {
      for (uint32_t i = 0; i < size; ++i)
        add(pos + i, 1, byte_ids_[static_cast<uint8_t>(piece[pos + i])]);
    } else if (unknown && unk_id >= 0) {
      if (unk_size == 0) unk_begin = pos;
      unk_size += size;
    } else {
      add(pos, size, known_id);
    }
    pos += size;
  }
  if (unk_size > 0) add(unk_begin, unk_size, unk_id);
}

void BpeModel::merge_by_scan(std::string_view piece, std::vector<Symbol>& symbols) const {
  const auto look_up = [&](size_t i) {
    const Symbol& left = symbols[i];
    const Symbol& right = symbols[i + 1];
    return find_merge(piece, left.begin, left.size, left.id, right.size, right.id);
  };
  for (size_t i = 0; i + 1 < symbols.size(); ++i) symbols[i].next = look_up(i);
  while (symbols.size() > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < symbols.size(); ++i)
      if (symbols[i].next.rank < symbols[best].next.rank) best = i;
    if (symbols[best].next.rank == Merge::kNone) return;
    symbols[best].size += symbols[best + 1].size;
    symbols[best].id = symbols[best].next.id;
    symbols.erase(symbols.begin() + static_cast<ptrdiff_t>(best) + 1);
    symbols[best].next = best + 1 < symbols.size() ? look_up(best) : Merge{};
    if (best > 0) symbols[best - 1].next = look_up(best - 1);
  }
}

void BpeModel::merge_by_heap(std::string_view piece, BpeScratch& scratch) const {
  // An entry is (rank, index of the left symbol); it is stale when the symbol's merge has another
  // rank by now. Removed symbols have size 0 and no merge.
  std::vector<Symbol>& symbols = scratch.symbols_;
  std::vector<uint64_t>& heap = scratch.heap_;
  const uint32_t end = static_cast<uint32_t>(symbols.size());
  heap.clear();
  const auto look_up = [&](uint32_t i) {
    Symbol& left = symbols[i];
    left.next = {};
    if (left.next_index == end) return;
    const Symbol& right = symbols[left.next_index];
    left.next = find_merge(piece, left.begin, left.size, left.id, right.size, right.id);
    if (left.next.rank != Merge::kNone) heap.push_back(uint64_t{left.next.rank} << 32 | i);
  };
  for (uint32_t i = 0; i < end; ++i) {
    symbols[i].previous_index = i == 0 ? end : i - 1;
    symbols[i].next_index = i + 1;
    look_up(i);
  }
  const std::greater<> later;
  std::make_heap(heap.begin(), heap.end(), later);
  const auto look_up_and_push = [&](uint32_t i) {
    const size_t before = heap.size();
    look_up(i);
    if (heap.size() > before) std::push_heap(heap.begin(), heap.end(), later);
  };
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), later);
    const uint64_t entry = heap.back();
    heap.pop_back();
    const uint32_t i = static_cast<uint32_t>(entry);
    Symbol& left = symbols[i];
    if (left.next.rank != entry >> 32) continue;
    Symbol& right = symbols[left.next_index];
    left.size += right.size;
    left.id = left.next.id;
    left.next_index = right.next_index;
    right.size = 0;
    right.next = {};
    if (left.next_index != end) symbols[left.next_index].previous_index = i;
    look_up_and_push(i);
    if (left.previous_index != end) look_up_and_push(left.previous_index);
  }
}

void BpeModel::merge_piece(std::string_view piece, BpeScratch& scratch,
                           std::vector<int32_t>& out) const {
  if (piece.size() > kLongPieceBytes) {
    std::vector<uint32_t> sizes(piece.size());
    std::vector<int32_t> ids(piece.size(), kNoSymbol);
    first_symbols(piece, [&](uint32_t begin, uint32_t size, int32_t id) {
      sizes[begin] = sizes[begin + size - 1] = size;
      ids[begin] = id;
    });
    merge_long_word(
        [&](uint32_t begin, uint32_t left_size, int32_t left_id, uint32_t right_size,
            int32_t right_id) {
          return find_merge(piece, begin, left_size, left_id, right_size, right_id);
        },
        sizes, ids);
    for (size_t pos = 0; pos < piece.size(); pos += sizes[pos])
      emit(piece.substr(pos, sizes[pos]), ids[pos], out);
    return;
  }
  std::vector<Symbol>& symbols = scratch.symbols_;
  symbols.clear();
  first_symbols(piece, [&](uint32_t begin, uint32_t size, int32_t id) {
    symbols.push_back({begin, size, id, {}, 0, 0});
  });
  if (symbols.size() <= kScanSymbols)
    merge_by_scan(piece, symbols);
  else
    merge_by_heap(piece, scratch);
  for (const Symbol& symbol : symbols)
    if (symbol.size > 0) emit(piece.substr(symbol.begin, symbol.size), symbol.id, out);
}

void BpeModel::encode_piece(std::string_view piece, BpeScratch& scratch,
                            std::vector<int32_t>& out) const {
  using CachedWord = BpeScratch::CachedWord;
  if (piece.size() > CachedWord::kMaxBytes) return merge_piece(piece, scratch, out);
  CachedWord& cached = scratch.cache_[keyed_hash(piece) % BpeScratch::kCachedWords];
  if (cached.num_bytes == piece.size() &&
      std::memcmp(cached.bytes, piece.data(), piece.size()) == 0) {
    out.insert(out.end(), cached.ids, cached.ids + cached.num_ids);
    return;
  }
  const size_t before = out.size();
  merge_piece(piece, scratch, out);
  const size_t num_ids = out.size() - before;
  if (num_ids > CachedWord::kMaxIds) return;
  cached.num_bytes = static_cast<uint8_t>(piece.size());
  cached.num_ids = static_cast<uint8_t>(num_ids);
  std::memcpy(cached.bytes, piece.data(), piece.size());
  std::copy(out.begin() + static_cast<ptrdiff_t>(before), out.end(), cached.ids);
}

// Some byte-level vocabularies (SmolLM2's) lack bytes that were not in their training text. As part
// of a valid character such a byte is left out, which is what Hugging Face does; alone it is
// U+FFFD.
std::string BpeModel::without_missing_bytes(std::string_view word) const {
  const auto missing = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] < 0; };
  std::string out;
  for (size_t pos = 0; pos < word.size();) {
    const DecodedChar c = decode_char(word, pos);
    const bool invalid = c.code_point == kInvalidCodePoint && missing(word[pos]);
    for (const char byte :
         invalid ? std::string_view("\xEF\xBF\xBD") : word.substr(pos, c.num_bytes))
      if (!missing(byte)) out += byte;
    pos += c.num_bytes;
  }
  return out;
}

void BpeModel::encode_word(std::string_view word, BpeScratch& scratch,
                           std::vector<int32_t>& out) const {
  if (byte_level && !all_bytes_ && unk_id < 0 &&
      std::any_of(
          word.begin(), word.end(), [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] < 0; }))
    return encode_whole_word(without_missing_bytes(word), scratch, out);
  encode_whole_word(word, scratch, out);
}

void BpeModel::encode_whole_word(std::string_view word, BpeScratch& scratch,
                                 std::vector<int32_t>& out) const {
  if (word.empty()) return;
  if (ignore_merges) {
    const int32_t id = byte_level ? by_bytes_.find(word) : vocabulary_.by_text.find(word);
    if (id >= 0 && can_come_from_merge(vocabulary_[id].kind)) {
      out.push_back(id);
      return;
    }
  }
  // Cutting must not part unknown characters that would become one token.
  const bool fuses = fuse_unk && unk_id >= 0 && !(byte_fallback && all_bytes_);
  if (fuses || (byte_level && word.size() <= kCutBytes)) return encode_piece(word, scratch, out);
  size_t begin = 0;
  uint32_t left = 0;
  for (size_t pos = 0; pos < word.size();) {
    const DecodedChar c =
        byte_level ? DecodedChar{static_cast<uint8_t>(word[pos]), 1} : decode_char(word, pos);
    if (pos > begin && !may_join(left, c.code_point)) {
      encode_piece(word.substr(begin, pos - begin), scratch, out);
      begin = pos;
    }
    left = c.code_point;
    pos += c.num_bytes;
  }
  encode_piece(word.substr(begin), scratch, out);
}

}  // namespace invar
