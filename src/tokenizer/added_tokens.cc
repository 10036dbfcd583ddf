// The trie over added tokens and the cutting of text at their matches.
#include "tokenizer/added_tokens.h"

#include <algorithm>

#include "base/check.h"
#include "tokenizer/unicode.h"

namespace invar {
namespace {

bool is_class(std::string_view text, size_t pos, uint8_t mask) {
  return CharClasses::get()(decode_char(text, pos).code_point) & mask;
}

}  // namespace

void AllowedRanges::append(size_t begin, size_t end) {
  if (begin == end) return;
  if (!ranges.empty() && ranges.back().end == begin)
    ranges.back().end = end;
  else
    ranges.push_back({begin, end});
}

bool AllowedRanges::contains(size_t begin, size_t end) const {
  const auto after = std::upper_bound(ranges.begin(), ranges.end(), begin,
                                      [](size_t pos, const Range& r) { return pos < r.begin; });
  return after != ranges.begin() && end <= std::prev(after)->end;
}

void AddedTokens::add(const AddedToken& token) {
  INVAR_CHECK(!token.content.empty(), "added token %d has no text", token.id);
  uint32_t node = 0;
  for (const char c : token.content) {
    const auto [edge, is_new] =
        edges_.emplace(uint64_t{node} << 8 | static_cast<uint8_t>(c), token_at_.size());
    if (is_new) token_at_.push_back(-1);
    node = edge->second;
  }
  if (token_at_[node] >= 0) return;
  token_at_[node] = static_cast<int32_t>(tokens_.size());
  tokens_.push_back(token);
  starts_[static_cast<uint8_t>(token.content[0])] = true;
}

int AddedTokens::longest_match(std::string_view text, size_t begin,
                               const AllowedRanges& allowed) const {
  int best = -1;
  uint32_t node = 0;
  for (size_t pos = begin; pos < text.size(); ++pos) {
    const auto edge = edges_.find(uint64_t{node} << 8 | static_cast<uint8_t>(text[pos]));
    if (edge == edges_.end()) break;
    node = edge->second;
    const int32_t index = token_at_[node];
    if (index < 0) continue;
    if (!tokens_[static_cast<size_t>(index)].special || allowed.contains(begin, pos + 1))
      best = index;
  }
  return best;
}

void AddedTokens::split(std::string_view text, const AllowedRanges& allowed,
                        const std::function<void(size_t begin, size_t end)>& piece,
                        const std::function<void(int32_t id)>& token) const {
  size_t piece_begin = 0;
  for (size_t pos = 0; pos < text.size();) {
    if (!starts_[static_cast<uint8_t>(text[pos])]) {
      ++pos;
      continue;
    }
    const int index = longest_match(text, pos, allowed);
    if (index < 0) {
      ++pos;
      continue;
    }
    const AddedToken& found = tokens_[static_cast<size_t>(index)];
    size_t begin = pos, end = pos + found.content.size();
    pos = end;
    if (found.single_word &&
        ((begin > 0 && is_class(text, previous_char(text, begin), kWordChar)) ||
         (end < text.size() && is_class(text, end, kWordChar))))
      continue;  // plain text, and what it covers is not looked at again
    if (found.lstrip)
      while (begin > piece_begin) {
        const size_t before = previous_char(text, begin);
        if (before < piece_begin || !is_class(text, before, kSpace)) break;
        begin = before;
      }
    if (found.rstrip)
      while (end < text.size() && is_class(text, end, kSpace))
        end += decode_char(text, end).num_bytes;
    if (begin > piece_begin) piece(piece_begin, begin);
    token(found.id);
    piece_begin = std::max(piece_begin, end);
  }
  if (piece_begin < text.size()) piece(piece_begin, text.size());
}

}  // namespace invar
