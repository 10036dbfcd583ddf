// Streaming detokenizer: bytes of tokens in, whole characters out.
#include "base/check.h"
#include "base/utf8.h"
#include "tokenizer/tokenizer.h"

namespace invar {
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
    const Utf8Prefix sequence = utf8_prefix(rest);
    if (sequence.state == Utf8Prefix::kIncomplete) break;
    text += sequence.state == Utf8Prefix::kCharacter ? rest.substr(0, sequence.num_bytes)
                                                     : kReplacementChar;
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
  return cut ? std::string(kReplacementChar) : std::string();
}

}  // namespace invar
