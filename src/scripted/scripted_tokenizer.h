// One token a byte, the specials of a script file, and its pieces, which only scripts say.
#pragma once

#include <string>
#include <vector>

#include "scripted/script.h"
#include "tokenizer/added_tokens.h"
#include "tokenizer/tokenizer.h"

namespace invar::scripted {

class ScriptedTokenizer : public Tokenizer {
 public:
  explicit ScriptedTokenizer(const ScriptFile& file);

  std::vector<int32_t> encode(std::span<const TextSegment> segments,
                              bool add_special) const override;
  using Tokenizer::encode;
  std::string_view token_bytes(int32_t id, bool with_special) const override;
  std::string_view token_text(int32_t id) const override;
  TokenKind token_kind(int32_t id) const override;
  int32_t find(std::string_view text) const override;
  int32_t vocab_size() const override { return static_cast<int32_t>(tokens_.size()); }
  std::string_view model_name() const override { return "bytes (scripted)"; }

 private:
  struct Token {
    std::string text;
    TokenKind kind = TokenKind::kUnused;
  };
  std::vector<Token> tokens_;
  AddedTokens added_;
};

}  // namespace invar::scripted
