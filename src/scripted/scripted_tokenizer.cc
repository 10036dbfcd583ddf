#include "scripted/scripted_tokenizer.h"

namespace invar::scripted {
namespace {

// As real vocabularies have it: <|im_start|> steers and is hidden, <think> is a part of the reply.
TokenKind kind_of(const SpecialToken& token, const ScriptFile& file) {
  const bool is_control =
      token.id == file.end_id || (token.text.starts_with("<|") && token.text.ends_with("|>"));
  return is_control ? TokenKind::kSpecial : TokenKind::kUserDefined;
}

}  // namespace

ScriptedTokenizer::ScriptedTokenizer(const ScriptFile& file) {
  tokens_.resize(static_cast<size_t>(file.first_piece_id()));
  for (size_t i = 0; i < 256; ++i)
    tokens_[i] = {std::string(1, static_cast<char>(i)), TokenKind::kNormal};
  for (const SpecialToken& special : file.specials) {
    const TokenKind kind = kind_of(special, file);
    tokens_[static_cast<size_t>(special.id)] = {special.text, kind};
    AddedToken added;
    added.content = special.text;
    added.id = special.id;
    added.special = kind == TokenKind::kSpecial;
    added_.add(added);
  }
  for (const std::string& piece : file.pieces) tokens_.push_back({piece, TokenKind::kNormal});
  eos_id = file.end_id;
  end_ids = {file.end_id};
}

std::vector<int32_t> ScriptedTokenizer::encode(std::span<const TextSegment> segments,
                                               bool /*add_special*/) const {
  std::string text;
  AllowedRanges allowed;
  for (const TextSegment& segment : segments) {
    const size_t begin = text.size();
    text += segment.text;
    if (segment.allow_special) allowed.append(begin, text.size());
  }
  std::vector<int32_t> ids;
  added_.split(
      text, allowed,
      [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) ids.push_back(static_cast<uint8_t>(text[i]));
      },
      [&](int32_t id) { ids.push_back(id); });
  return ids;
}

std::string_view ScriptedTokenizer::token_bytes(int32_t id, bool with_special) const {
  const TokenKind kind = token_kind(id);
  if (kind == TokenKind::kUnused || (kind == TokenKind::kSpecial && !with_special)) return {};
  return tokens_[static_cast<size_t>(id)].text;
}

std::string_view ScriptedTokenizer::token_text(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return tokens_[static_cast<size_t>(id)].text;
}

TokenKind ScriptedTokenizer::token_kind(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return TokenKind::kUnused;
  return tokens_[static_cast<size_t>(id)].kind;
}

int32_t ScriptedTokenizer::find(std::string_view text) const {
  for (size_t i = 0; i < tokens_.size(); ++i)
    if (tokens_[i].kind != TokenKind::kUnused && tokens_[i].text == text)
      return static_cast<int32_t>(i);
  return -1;
}

}  // namespace invar::scripted
