// Added tokens: strings that are cut out of the text before anything else looks at it, such as
// <|im_start|>. Finds them; what may be found where (special tokens only in text that the template
// wrote) is given by the caller as ranges.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"

namespace invar {

struct AddedToken {
  std::string content;
  int32_t id = -1;
  bool special = false;
  bool normalized = false;  // matched in the normalized text
  bool single_word = false;
  bool lstrip = false, rstrip = false;
};

// The parts of a text in which special tokens may be recognised: sorted, disjoint, none touch.
struct AllowedRanges {
  struct Range {
    size_t begin, end;
  };
  std::vector<Range> ranges;
  // Adds [begin, end) behind all others, joining it to the last one when they touch.
  void append(size_t begin, size_t end);
  bool contains(size_t begin, size_t end) const;
};

class AddedTokens {
 public:
  static constexpr size_t kMaxContentBytes = 1024;

  void add(const AddedToken& token);  // content not empty; a repeated content keeps the first
  bool empty() const { return tokens_.empty(); }

  // Calls piece(begin, end) for text without added tokens and token(id) for matches, in order.
  // Leftmost first, the longest of those that begin there.
  void split(std::string_view text, const AllowedRanges& allowed,
             const std::function<void(size_t begin, size_t end)>& piece,
             const std::function<void(int32_t id)>& token) const;

 private:
  int longest_match(std::string_view text, size_t begin, const AllowedRanges& allowed) const;

  std::vector<AddedToken> tokens_;
  // A trie: (node << 8 | byte) -> node; token_at_[node] is an index into tokens_ or -1.
  std::unordered_map<uint64_t, uint32_t> edges_;
  std::vector<int32_t> token_at_ = {-1};
  bool starts_[256] = {};  // bytes that begin a token
};

}  // namespace invar
