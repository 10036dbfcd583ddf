// Streaming detokenizer: bytes of tokens in, whole characters out.
#include "base/check.h"
#include "tokenizer/tokenizer.h"

namespace invar {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// What stands at the beginning of some bytes.
struct Sequence {
  size_t num_bytes;  // of the character, or of the maximal part that began well
  enum { kCharacter, kInvalid, kIncomplete } state;
};

// Table 3-7 of the Unicode Standard: which second bytes a lead byte allows.
Sequence first_sequence(std::string_view bytes) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(bytes[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {1, Sequence::kCharacter};
  if (lead < 0xC2 || lead > 0xF4) return {1, Sequence::kInvalid};
  const size_t size = lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  for (size_t i = 1; i < size; ++i) {
    if (i == bytes.size()) return {i, Sequence::kIncomplete};
    uint8_t low = 0x80, high = 0xBF;
    if (i == 1) {
      if (lead == 0xE0) low = 0xA0;
      if (lead == 0xED) high = 0x9F;
      if (lead == 0xF0) low = 0x90;
      if (lead == 0xF4) high = 0x8F;
    }
    if (byte(i) < low || byte(i) > high) return {i, Sequence::kInvalid};
  }
  return {size, Sequence::kCharacter};
}

}  // namespace

Detokenizer::Detokenizer(const Tokenizer& tokenizer, bool with_special)
    : tokenizer_(tokenizer), with_special_(with_special) {}

std::string Detokenizer::push(int32_t id) {
  std::string_view bytes = tokenizer_.token_bytes(id, with_special_);
  if (bytes.empty()) return {};
  if (at_start_ && tokenizer_.strip_leading_space && bytes[0] == ' ') bytes.remove_prefix(1);
  at_start_ = false;
  pending_ += bytes;
  std::string text;
  std::string_view rest = pending_;
  while (!rest.empty()) {
    const Sequence sequence = first_sequence(rest);
    if (sequence.state == Sequence::kIncomplete) break;
    text +=
        sequence.state == Sequence::kCharacter ? rest.substr(0, sequence.num_bytes) : kReplacement;
    rest.remove_prefix(sequence.num_bytes);
  }
  pending_ = std::string(rest);
  INVAR_CHECK(pending_.size() <= 3, "%zu bytes held back", pending_.size());
  return text;
}

std::string Detokenizer::finish() {
  // What is held back is the beginning of one character: one maximal subpart.
  const bool cut = !pending_.empty();
  pending_.clear();
  at_start_ = true;
  return cut ? std::string(kReplacement) : std::string();
}

}  // namespace invar
