// Tokenizer: text <-> token ids for the vocabulary of a checkpoint. Byte-level BPE and
// SentencePiece-style BPE with scores (specs/tokenizers.md). Immutable and thread safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/result.h"
#include "weights/checkpoint.h"

namespace invar {

// A run of text and whether special tokens may be recognised in it: template literals may, what a
// user or a tool wrote may not. Adjacent segments are one text for everything else (normalizer,
// pre-tokenizer, merges), so that ids equal those of the joined text when it holds no specials.
struct TextSegment {
  std::string text;
  bool allow_special = false;
};

enum class TokenKind : uint8_t {
  kNormal,
  kSpecial,      // control: matched only where allowed, hidden in text output
  kUserDefined,  // added token, always matched, shown in text output
  kByte,         // <0xHH>
  kUnknown,
  kUnused,  // fillers and padding ids: never matched, never sampled
};

class Tokenizer {
 public:
  // Picks tokenizer.json or the GGUF vocabulary of the checkpoint. Errors name file and field.
  static Result<std::unique_ptr<Tokenizer>> from_checkpoint(const Checkpoint& checkpoint);
  static Result<std::unique_ptr<Tokenizer>> from_gguf(const Checkpoint::GgufVocabulary& vocabulary);
  // tokenizer_config may be null.
  static Result<std::unique_ptr<Tokenizer>> from_tokenizer_json(std::string_view text,
                                                                const Json& tokenizer_config);
  virtual ~Tokenizer() = default;

  // Any bytes: invalid UTF-8 is encoded too (as bytes where the vocabulary has them, else as
  // U+FFFD). add_special: put BOS (and EOS) where the vocabulary asks for it; not a second BOS when
  // the text already begins with it. Linear in the text.
  virtual std::vector<int32_t> encode(std::span<const TextSegment> segments,
                                      bool add_special) const = 0;
  std::vector<int32_t> encode(std::string_view text, bool allow_special, bool add_special) const;

  // The bytes that token `id` adds to the output; empty for specials, unused ids and ids outside
  // the vocabulary. with_special: specials give their text instead.
  virtual std::string_view token_bytes(int32_t id, bool with_special = false) const = 0;
  // The token's text in the vocabulary (specials too), for display.
  virtual std::string_view token_text(int32_t id) const = 0;
  virtual TokenKind token_kind(int32_t id) const = 0;
  virtual int32_t find(std::string_view token_text) const = 0;  // -1: none

  virtual int32_t vocab_size() const = 0;           // ids run from 0 to vocab_size() - 1
  virtual std::string_view model_name() const = 0;  // "byte-level BPE (qwen2)", for `invar info`

  int32_t bos_id = -1, eos_id = -1, pad_id = -1, unk_id = -1;
  bool add_bos = false, add_eos = false;
  // SentencePiece models of the Llama 2 kind: the first space of a reply is dropped.
  bool strip_leading_space = false;
  // End of generation: eos, eot, eom and the known end texts (specs/tokenizers.md section 7).
  std::vector<int32_t> end_ids;
};

// Bytes of tokens -> valid UTF-8, never a part of a character. Incomplete characters at the end are
// held back (at most 3 bytes); bytes that can never become valid give one U+FFFD per maximal
// subpart.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, bool with_special = false);
  std::string push(int32_t id);  // text that became complete, maybe empty
  std::string finish();          // what was held back, as U+FFFD
  bool holds_back() const { return !pending_.empty(); }

 private:
  const Tokenizer& tokenizer_;
  bool with_special_;
  bool at_start_ = true;
  std::string pending_;
};

}  // namespace invar
