// BpeTokenizer: the one implementation of Tokenizer. Added tokens, normalizer, pre-tokenizer and
// merges in a row; gguf_vocabulary.cc and tokenizer_json.cc fill it in.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "tokenizer/added_tokens.h"
#include "tokenizer/bpe.h"
#include "tokenizer/normalizer.h"
#include "tokenizer/pre_tokenizer.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace invar {

class BpeTokenizer final : public Tokenizer {
 public:
  BpeTokenizer();
  ~BpeTokenizer() override;

  using Tokenizer::encode;
  std::vector<int32_t> encode(std::span<const TextSegment> segments,
                              bool add_special) const override;
  std::string_view token_bytes(int32_t id, bool with_special) const override;
  std::string_view token_text(int32_t id) const override;
  TokenKind token_kind(int32_t id) const override;
  int32_t find(std::string_view text) const override { return vocabulary.by_text.find(text); }
  int32_t vocab_size() const override { return static_cast<int32_t>(vocabulary.size()); }
  std::string_view model_name() const override { return name; }

  // ---- Filled in by the loaders, then finish(). ----
  Vocabulary vocabulary;
  BpeModel model{vocabulary};
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  std::string name;
  // What add_special puts around the text (TemplateProcessing, or BOS and EOS).
  std::vector<int32_t> prefix_ids, suffix_ids;

  void add_token(const AddedToken& token);  // its id is in the vocabulary already
  // Derives tables and end_ids (from eos_id, the ids given and the known end texts).
  void finish(std::vector<int32_t> known_end_ids);

 private:
  struct Encoding;  // one encode() call in progress
  class ScratchPool;

  void settle_unknown_token(const std::vector<int32_t>& known_end_ids);

  AddedTokens raw_tokens_;         // matched in the text as given
  AddedTokens normalized_tokens_;  // matched in the normalized text
  std::unique_ptr<ScratchPool> scratch_;
};

// Whether `text` is one that ends a reply in the models we know (specs/tokenizers.md section 7).
bool is_end_text(std::string_view text);

}  // namespace invar
