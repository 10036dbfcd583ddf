// DiskPages: the disk tier of the prefix cache: between the scheduler, which asks for pages of a
// sequence, the store, which has them by key, and the backend, in whose memory they are used.
#pragma once

#include <memory>
#include <utility>

#include "backend/page_access.h"
#include "cache/page_store.h"
#include "engine/page_source.h"
#include "engine/sequence.h"

namespace invar {

class DiskPages : public PageSource {
 public:
  // `pages` and `cache` outlive this.
  DiskPages(std::unique_ptr<PageStore> store, PageAccess& pages, KvCache& cache)
      : store_(std::move(store)), pages_(pages), cache_(cache) {}

  bool has(Sequence& sequence, int64_t index) override;
  bool load(Sequence& sequence, int64_t index, int32_t page) override;
  // Keeps the full pages that the sequence shares with later ones. Before it gives them back.
  void save(Sequence& sequence);

 private:
  const PageStore::Key& key_of(Sequence& sequence, int64_t index);

  const std::unique_ptr<PageStore> store_;
  PageAccess& pages_;
  KvCache& cache_;
};

}  // namespace invar
