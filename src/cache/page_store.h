// PageStore: pages of keys and values kept on disk between starts, one file each, found by what
// they were computed from. A key is a chain of hashes over the model, the arithmetic, the salt and
// all tokens up to the page's end; the file repeats the tokens, which are compared. A file that
// does not check is set aside and computed again: nothing that goes wrong here is an error of a
// request.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "cache/cache_folder.h"

namespace invar {

struct PageStoreOptions {
  std::string folder;
  uint64_t max_bytes = 0;  // of all pages in the folder
  std::string identity;    // of weights and arithmetic: pages of others are never taken
  size_t page_bytes = 0;
};

class PageStore {
 public:
  // Null, with a log line, when the folder cannot be used at all.
  static std::unique_ptr<PageStore> open(PageStoreOptions options);
  ~PageStore();  // writes what is waiting

  using Key = std::string;  // 64 hexadecimal digits
  Key root_key(std::string_view salt) const;
  static Key next_key(const Key& before, std::span<const int32_t> page_tokens);

  bool has(const Key& key) const;
  // The bytes of a page; nothing when it is not there or damaged.
  std::optional<std::vector<uint8_t>> load(const Key& key, std::span<const int32_t> tokens);
  // How many of so many new pages may be saved now; too much may wait already to be written.
  size_t take_room(size_t num_pages);
  // Written in the background, if there is room.
  void save(const Key& key, std::span<const int32_t> tokens, std::vector<uint8_t> bytes);
  // Of the pages of one text, from its beginning: they were used now. A page is found by way of
  // those before it only, so the last ones will be the first to give way.
  void touch(std::vector<Key> keys);
  // Until everything has been written.
  void wait();

  struct Counts {
    int64_t num_loaded = 0, num_saved = 0, num_damaged = 0, num_left_out = 0;
  };
  Counts counts() const;

 private:
  struct Waiting {
    Key key;
    std::vector<int32_t> tokens;
    std::vector<uint8_t> bytes;
    std::vector<Key> touched;  // instead of a page
  };
  PageStore(PageStoreOptions options, CacheFolder folder);
  void write_all();
  bool write(const Waiting& page);
  bool publish(const Waiting& page);
  void touch_all(const std::vector<Key>& keys);
  void forget(const Key& key);

  const PageStoreOptions options_;
  CacheFolder folder_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::set<Key> keys_;  // on disk or waiting, as far as we know
  std::deque<Waiting> waiting_;
  size_t waiting_bytes_ = 0;
  bool stopping_ = false;
  Counts counts_;
  int64_t last_touch_ns_ = 0;  // the writer's
  std::thread writer_;
};

}  // namespace invar
