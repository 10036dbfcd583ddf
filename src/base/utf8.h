// What stands at the beginning of some bytes that should be UTF-8: for whoever must put out valid
// text whatever came in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace invar {

inline constexpr std::string_view kReplacementChar = "\xEF\xBF\xBD";  // U+FFFD

struct Utf8Prefix {
  // Of the character, or of the maximal part that began well (at least 1).
  size_t num_bytes;
  enum { kCharacter, kInvalid, kIncomplete } state;
};

// Table 3-7 of the Unicode Standard: which second bytes a lead byte allows. `bytes` is not empty.
inline Utf8Prefix utf8_prefix(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, Utf8Prefix::kCharacter};
  if (lead < 0xC2 || lead > 0xF4) return {1, Utf8Prefix::kInvalid};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {i, Utf8Prefix::kIncomplete};
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {i, Utf8Prefix::kInvalid};
  }
  return {size, Utf8Prefix::kCharacter};
}

}  // namespace invar
