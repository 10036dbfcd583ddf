// UTF-8 and the character classes that pre-tokenizer patterns are written in. Invalid bytes are
// characters of their own: text from users may hold any bytes and must be encoded all the same.
// NFC stands in nfc.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace invar {

// Bits; a character may have several. The values are those in tools/make_unicode_tables.py.
enum CharClass : uint8_t {
  kUpper = 1,        // Lu, Lt
  kLower = 2,        // Ll
  kOtherLetter = 4,  // Lm, Lo
  kMark = 8,         // M
  kNumber = 16,      // N, as regexes see it
  kSpace = 32,       // White_Space
  kNumeric = 64,     // N, as the Digits splitter sees it (a newer Unicode)
  kWordChar = 128,   // \w
  kLetter = kUpper | kLower | kOtherLetter,
};

// What an invalid byte decodes to: no class, no vocabulary entry, one byte long.
inline constexpr uint32_t kInvalidCodePoint = 0xFFFFFFFF;

struct DecodedChar {
  uint32_t code_point;
  uint32_t num_bytes;  // 1 for an invalid byte
};

// The character at text[pos]; pos < text.size(). Overlong forms, surrogates and values above
// U+10FFFF are invalid.
DecodedChar decode_multi_byte(std::string_view text, size_t pos);
inline DecodedChar decode_char(std::string_view text, size_t pos) {
  const auto byte = static_cast<uint8_t>(text[pos]);
  if (byte < 0x80) return {byte, 1};
  return decode_multi_byte(text, pos);
}

// The beginning of the character that ends before text[pos]; pos > 0.
size_t previous_char(std::string_view text, size_t pos);

void append_utf8(std::string& out, uint32_t code_point);
bool is_valid_utf8(std::string_view text);
bool is_one_char(std::string_view text);  // exactly one, and valid
bool is_ascii(std::string_view text);

// Class lookup over a two-level table that is made from the ranges once.
class CharClasses {
 public:
  static const CharClasses& get();
  uint8_t operator()(uint32_t code_point) const {
    if (code_point >= 0x110000) return 0;
    return blocks_[index_[code_point >> 7]][code_point & 127];
  }

 private:
  CharClasses();
  uint16_t index_[0x110000 >> 7];
  uint8_t blocks_[512][128];
};

}  // namespace invar
