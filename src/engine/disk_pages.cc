#include "engine/disk_pages.h"

#include <span>
#include <vector>

namespace invar {
namespace {

std::span<const int32_t> page_tokens(const Sequence& sequence, int64_t index) {
  return std::span(sequence.token_ids)
      .subspan(static_cast<size_t>(index * kPagePositions), static_cast<size_t>(kPagePositions));
}

}  // namespace

// Each key continues the one before; a sequence keeps those that were asked for.
const PageStore::Key& DiskPages::key_of(Sequence& sequence, int64_t index) {
  std::vector<PageStore::Key>& keys = sequence.page_keys;
  while (static_cast<int64_t>(keys.size()) <= index)
    keys.push_back(
        PageStore::next_key(keys.empty() ? store_->root_key(sequence.cache_salt) : keys.back(),
                            page_tokens(sequence, static_cast<int64_t>(keys.size()))));
  return keys[static_cast<size_t>(index)];
}

bool DiskPages::has(Sequence& sequence, int64_t index) {
  return store_->has(key_of(sequence, index));
}

bool DiskPages::load(Sequence& sequence, int64_t index, int32_t page) {
  const auto bytes = store_->load(key_of(sequence, index), page_tokens(sequence, index));
  if (!bytes) return false;
  pages_.write_page(cache_, page, *bytes);
  return true;
}

void DiskPages::save(Sequence& sequence) {
  for (int64_t i = 0; i < sequence.holding.depth; ++i) {
    const PageStore::Key& key = key_of(sequence, i);
    if (store_->has(key)) continue;
    std::vector<uint8_t> bytes =
        pages_.read_page(cache_, sequence.holding.pages[static_cast<size_t>(i)]);
    store_->save(key, page_tokens(sequence, i), std::move(bytes));
  }
}

}  // namespace invar
