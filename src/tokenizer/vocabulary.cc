// Vocabulary storage, the string index and the byte alphabet.
#include "tokenizer/vocabulary.h"

#include <array>
#include <cstring>

#include "base/check.h"
#include "base/keyed_hash.h"
#include "tokenizer/unicode.h"

namespace invar {

void StringIndex::reserve(size_t num_keys) {
  size_t num_slots = 16;
  while (num_slots < num_keys * 2) num_slots *= 2;
  if (num_slots <= slots_.size()) return;
  std::vector<Slot> old(num_slots);
  old.swap(slots_);
  for (const Slot& slot : old)
    if (slot.id >= 0) {
      const std::string_view key(slot.data, slot.size);
      slot_for(key, keyed_hash(key)) = slot;
    }
}

StringIndex::Slot& StringIndex::slot_for(std::string_view key, uint64_t hash) {
  const size_t mask = slots_.size() - 1;
  size_t i = hash & mask;
  for (;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.id < 0 || (slot.hash == static_cast<uint32_t>(hash >> 32) && slot.size == key.size() &&
                        std::memcmp(slot.data, key.data(), key.size()) == 0))
      return slot;
  }
}

bool StringIndex::insert(std::string_view key, int32_t id) {
  if (find(key) >= 0) return false;
  assign(key, id);
  return true;
}

void StringIndex::assign(std::string_view key, int32_t id) {
  if ((num_keys_ + 1) * 2 > slots_.size()) reserve((num_keys_ + 1) * 2);
  const uint64_t hash = keyed_hash(key);
  Slot& slot = slot_for(key, hash);
  if (slot.id < 0) ++num_keys_;
  slot = {key.data(), static_cast<uint32_t>(key.size()), static_cast<uint32_t>(hash >> 32), id};
  max_key_bytes_ = std::max(max_key_bytes_, key.size());
}

int32_t StringIndex::find(std::string_view key) const {
  if (slots_.empty() || key.size() > max_key_bytes_) return -1;
  return const_cast<StringIndex*>(this)->slot_for(key, keyed_hash(key)).id;
}

namespace byte_alphabet {
namespace {

struct Maps {
  std::array<uint32_t, 256> code_point;
  std::array<int16_t, 324> byte;  // by code point; -1: outside the alphabet
  constexpr Maps() : code_point(), byte() {
    for (int16_t& b : byte) b = -1;
    uint32_t next = 0x100;
    for (uint32_t b = 0; b < 256; ++b) {
      const bool printable = (b >= 33 && b <= 126) || (b >= 161 && b <= 172) || b >= 174;
      code_point[b] = printable ? b : next++;
      byte[code_point[b]] = static_cast<int16_t>(b);
    }
  }
};
constexpr Maps kMaps;

}  // namespace

uint32_t code_point_of(uint8_t byte) { return kMaps.code_point[byte]; }

bool to_bytes(std::string_view text, std::string& bytes) {
  bytes.clear();
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = decode_char(text, pos);
    if (c.code_point >= kMaps.byte.size() || kMaps.byte[c.code_point] < 0) return false;
    bytes += static_cast<char>(kMaps.byte[c.code_point]);
    pos += c.num_bytes;
  }
  return true;
}

}  // namespace byte_alphabet

int byte_of_byte_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  int value = 0;
  for (const char c : text.substr(3, 2)) {
    if (c >= '0' && c <= '9')
      value = value * 16 + (c - '0');
    else if (c >= 'A' && c <= 'F')
      value = value * 16 + (c - 'A' + 10);
    else
      return -1;
  }
  return value;
}

void Vocabulary::set(int32_t id, std::string_view text, std::string_view bytes, TokenKind kind) {
  INVAR_CHECK(has(id), "id %d of %zu", id, size());
  const std::string_view stored = store(text);
  tokens_[static_cast<size_t>(id)] = {stored, bytes == text ? stored : store(bytes), kind};
}

std::string_view Vocabulary::store(std::string_view text) {
  if (text.empty()) return {};
  if (text.size() > block_left_) {
    block_left_ = std::max<size_t>(text.size(), 1 << 18);
    blocks_.push_back(std::make_unique<char[]>(block_left_));
    block_next_ = blocks_.back().get();
  }
  std::memcpy(block_next_, text.data(), text.size());
  const std::string_view stored(block_next_, text.size());
  block_next_ += text.size();
  block_left_ -= text.size();
  return stored;
}

}  // namespace invar
