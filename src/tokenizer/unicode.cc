// UTF-8 decoding and the class table.
#include "tokenizer/unicode.h"

#include <cstring>
#include <memory>

#include "base/check.h"
#include "tokenizer/unicode_tables.h"

namespace invar {

DecodedChar decode_multi_byte(std::string_view text, size_t pos) {
  constexpr DecodedChar kInvalid = {kInvalidCodePoint, 1};
  const auto* bytes = reinterpret_cast<const uint8_t*>(text.data()) + pos;
  const size_t left = text.size() - pos;
  const uint8_t lead = bytes[0];
  const auto continues = [&](size_t i) { return i < left && (bytes[i] & 0xC0) == 0x80; };
  if (lead < 0x80) return {lead, 1};
  if (lead < 0xC2) return kInvalid;
  if (lead < 0xE0) {
    if (!continues(1)) return kInvalid;
    return {(lead & 0x1Fu) << 6 | (bytes[1] & 0x3Fu), 2};
  }
  if (lead < 0xF0) {
    if (!continues(1) || !continues(2)) return kInvalid;
    const uint32_t c = (lead & 0x0Fu) << 12 | (bytes[1] & 0x3Fu) << 6 | (bytes[2] & 0x3Fu);
    if (c < 0x800 || (c >= 0xD800 && c < 0xE000)) return kInvalid;
    return {c, 3};
  }
  if (lead > 0xF4 || !continues(1) || !continues(2) || !continues(3)) return kInvalid;
  const uint32_t c = (lead & 0x07u) << 18 | (bytes[1] & 0x3Fu) << 12 | (bytes[2] & 0x3Fu) << 6 |
                     (bytes[3] & 0x3Fu);
  if (c < 0x10000 || c > 0x10FFFF) return kInvalid;
  return {c, 4};
}

size_t previous_char(std::string_view text, size_t pos) {
  INVAR_CHECK(pos > 0 && pos <= text.size(), "pos %zu of %zu", pos, text.size());
  for (size_t n = 1; n <= 4 && n <= pos; ++n)
    if (const DecodedChar c = decode_char(text.substr(0, pos), pos - n);
        c.num_bytes == n && c.code_point != kInvalidCodePoint)
      return pos - n;
  return pos - 1;  // an invalid byte
}

void append_utf8(std::string& out, uint32_t c) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (c < 0x80) {
    put(c);
  } else if (c < 0x800) {
    put(0xC0 | c >> 6);
    put(0x80 | (c & 0x3F));
  } else if (c < 0x10000) {
    put(0xE0 | c >> 12);
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  } else {
    put(0xF0 | c >> 18);
    put(0x80 | (c >> 12 & 0x3F));
    put(0x80 | (c >> 6 & 0x3F));
    put(0x80 | (c & 0x3F));
  }
}

bool is_valid_utf8(std::string_view text) {
  for (size_t pos = 0; pos < text.size();) {
    const DecodedChar c = decode_char(text, pos);
    if (c.code_point == kInvalidCodePoint) return false;
    pos += c.num_bytes;
  }
  return true;
}

bool is_one_char(std::string_view text) {
  if (text.empty()) return false;
  const DecodedChar c = decode_char(text, 0);
  return c.code_point != kInvalidCodePoint && c.num_bytes == text.size();
}

bool is_ascii(std::string_view text) {
  size_t pos = 0;
  for (; pos + 8 <= text.size(); pos += 8) {
    uint64_t word;
    std::memcpy(&word, text.data() + pos, 8);
    if (word & 0x8080808080808080u) return false;
  }
  for (; pos < text.size(); ++pos)
    if (static_cast<uint8_t>(text[pos]) >= 0x80) return false;
  return true;
}

const CharClasses& CharClasses::get() {
  static const std::unique_ptr<const CharClasses> table(new CharClasses);
  return *table;
}

CharClasses::CharClasses() {
  std::unique_ptr<uint8_t[]> all(new uint8_t[0x110000]());
  for (const unicode::ClassRange& range : unicode::char_class_ranges())
    std::memset(&all[range.first], static_cast<int>(range.value), range.last - range.first + 1);
  size_t num_blocks = 0;
  for (size_t block = 0; block < std::size(index_); ++block) {
    const uint8_t* source = &all[block << 7];
    size_t same = 0;
    // Long runs (CJK, unassigned planes) repeat the last blocks, so the search from there is short.
    for (same = num_blocks; same > 0; --same)
      if (std::memcmp(blocks_[same - 1], source, 128) == 0) break;
    if (same == 0) {
      INVAR_CHECK(num_blocks < std::size(blocks_), "too many blocks of character classes");
      std::memcpy(blocks_[num_blocks++], source, 128);
      same = num_blocks;
    }
    index_[block] = static_cast<uint16_t>(same - 1);
  }
}

}  // namespace invar
