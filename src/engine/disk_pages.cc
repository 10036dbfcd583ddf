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

// From the last page to the first, so that the limit of the folder takes the last ones; what there
// is no room for is left out at the end.
void DiskPages::save(Sequence& sequence) {
  const int64_t num_pages = sequence.holding.depth;
  std::vector<int64_t> missing;
  for (int64_t i = 0; i < num_pages; ++i)
    if (!store_->has(key_of(sequence, i))) missing.push_back(i);
  missing.resize(store_->take_room(missing.size()));
  for (size_t k = missing.size(); k-- > 0;) {
    const int64_t i = missing[k];
    store_->save(key_of(sequence, i), page_tokens(sequence, i),
                 pages_.read_page(cache_, sequence.holding.pages[static_cast<size_t>(i)]));
  }
  store_->touch({sequence.page_keys.begin(), sequence.page_keys.begin() + num_pages});
}

}  // namespace invar
