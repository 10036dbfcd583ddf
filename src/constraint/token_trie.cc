// Building the tree from sorted tokens, and the walks through strings.
#include "constraint/token_trie.h"

#include <algorithm>

#include "base/check.h"

namespace invar {

std::shared_ptr<const TokenTrie> TokenTrie::make(const Tokenizer& tokenizer,
                                                 std::span<const int32_t> end_ids) {
  auto trie = std::make_shared<TokenTrie>();
  trie->end_ids_.assign(end_ids.begin(), end_ids.end());
  std::erase_if(trie->end_ids_, [&](int32_t id) { return id < 0 || id >= tokenizer.vocab_size(); });
  std::sort(trie->end_ids_.begin(), trie->end_ids_.end());
  trie->bytes_.resize(static_cast<size_t>(tokenizer.vocab_size()));
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    const TokenKind kind = tokenizer.token_kind(id);
    if (trie->is_end(id) || kind == TokenKind::kUnused || kind == TokenKind::kUnknown) continue;
    trie->bytes_[static_cast<size_t>(id)] = std::string(tokenizer.token_bytes(id));
    if (!trie->bytes_[static_cast<size_t>(id)].empty()) continue;
    trie->special_ids_.push_back(id);
    trie->special_texts_.emplace_back(std::string(tokenizer.token_text(id)), id);
  }
  trie->build();
  return trie;
}

std::shared_ptr<const TokenTrie> TokenTrie::make(std::vector<std::string> token_bytes,
                                                 std::span<const int32_t> end_ids) {
  auto trie = std::make_shared<TokenTrie>();
  trie->end_ids_.assign(end_ids.begin(), end_ids.end());
  std::sort(trie->end_ids_.begin(), trie->end_ids_.end());
  trie->bytes_ = std::move(token_bytes);
  for (int32_t id = 0; id < trie->vocab_size(); ++id) {
    std::string& bytes = trie->bytes_[static_cast<size_t>(id)];
    if (trie->is_end(id)) bytes.clear();
    if (bytes.empty() && !trie->is_end(id)) trie->special_ids_.push_back(id);
  }
  trie->build();
  return trie;
}

bool TokenTrie::is_end(int32_t id) const {
  return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
}

int32_t TokenTrie::find_special(std::string_view text) const {
  for (const auto& [special, id] : special_texts_)
    if (special == text) return id;
  return -1;
}

void TokenTrie::build() {
  for (uint32_t id = 0; id < bytes_.size(); ++id) {
    const std::string& bytes = bytes_[id];
    // A token so long is never offered: depths are 16 bits, and no real vocabulary has one.
    if (bytes.empty() || bytes.size() > 0xFFFF) continue;
    tokens_.push_back(id);
    max_token_bytes_ = std::max(max_token_bytes_, bytes.size());
    if (bytes.size() == 1) spellable_.set(static_cast<uint8_t>(bytes[0]));
    const auto opens =
        std::count_if(bytes.begin(), bytes.end(), [](char c) { return c == '{' || c == '['; });
    max_opens_ = std::max(max_opens_, static_cast<int>(opens));
  }
  std::sort(tokens_.begin(), tokens_.end(), [&](uint32_t a, uint32_t b) {
    return bytes_[a] != bytes_[b] ? bytes_[a] < bytes_[b] : a < b;
  });
  std::vector<uint32_t> path;  // nodes of the current token
  std::string_view previous;
  for (size_t i = 0; i < tokens_.size(); ++i) {
    const std::string_view bytes = bytes_[tokens_[i]];
    const size_t limit = std::min(bytes.size(), previous.size());
    size_t shared = 0;
    while (shared < limit && bytes[shared] == previous[shared]) ++shared;
    for (; path.size() > shared; path.pop_back())
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    for (size_t at = shared; at < bytes.size(); ++at) {
      path.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({0, static_cast<uint32_t>(i), static_cast<uint16_t>(at),
                        static_cast<uint8_t>(bytes[at])});
    }
    previous = bytes;
  }
  for (const uint32_t node : path) nodes_[node].end = static_cast<uint32_t>(nodes_.size());
  // A node made for a longer token begins where that token stands: tokens before it that end at the
  // node would have been its prefixes, and made it themselves.
  nodes_.push_back(
      {static_cast<uint32_t>(nodes_.size()), static_cast<uint32_t>(tokens_.size()), 0, 0});
}

const TokenTrie::StringWalk& TokenTrie::string_walk(StringState state) const {
  StringWalk& walk = walks_[state];
  std::call_once(walk_made_[state], [&] {
    struct Here {
      StringState state;
      uint32_t chars;
    };
    std::vector<Here> at(max_token_bytes_ + 1);
    at[0] = {state, 0};
    walk.bits.resize(num_mask_words());
    const std::span<const Node> all = nodes();
    for (uint32_t i = 0; i < all.size();) {
      const Node& node = all[i];
      bool counts = false;
      const StringState next = next_string_state(at[node.depth].state, node.byte, counts);
      if (next == kNumStringStates) {
        i = node.end;
        continue;
      }
      const uint32_t chars = at[node.depth].chars + (counts ? 1 : 0);
      if (next == kStringEnd) {
        walk.closes.push_back({chars, i});
        i = node.end;
        continue;
      }
      at[node.depth + size_t{1}] = {next, chars};
      for (const uint32_t id : tokens_at(i)) {
        walk.bits[id >> 6] |= uint64_t{1} << (id & 63);
        walk.tokens.push_back({chars, id});
      }
      ++i;
    }
    const auto by_chars = [](const auto& a, const auto& b) { return a.chars < b.chars; };
    std::stable_sort(walk.tokens.begin(), walk.tokens.end(), by_chars);
    std::stable_sort(walk.closes.begin(), walk.closes.end(), by_chars);
  });
  return walk;
}

}  // namespace invar
