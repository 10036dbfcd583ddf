// PrefixCache: pages of keys and values that outlive their sequence, found again by the tokens they
// hold. A tree: a node is one page, its children are the pages that followed it, so the way from
// the root spells a prompt. Tokens are compared, never only hashes of them. Because there is one
// arithmetic, a page found here holds the very bits that computing it again would give; the cache
// changes speed only.
//
// A full page is shared by any number of sequences, none of which writes to it. The last, partly
// filled page of a prompt is found too, but its finder takes a copy, up to the first token that
// differs.
//
// Models with recurrent layers need more than pages to go on from a position: the state there. A
// page's node may carry snapshots of it, each behind some number of the page's tokens; they go when
// the page goes.
//
// Pages of the cache that no sequence uses count as available: the least recently used ones give
// way when somebody needs a page. Bookkeeping only; the memory is the backend's. One thread.
#pragma once

#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "cache/block_pool.h"
#include "cache/state_slots.h"

namespace invar {

class PrefixCache {
 public:
  // A copy costs about as much as computing so many tokens.
  static constexpr int64_t kMinCopiedTokens = 16;

  struct Node;

  // What one sequence holds. The first `depth` pages are shared full pages, on the way from the
  // root to `node`; later ones are its own.
  struct Holding {
    std::vector<int32_t> pages;
    Node* node = nullptr;  // null: not attached, nothing is shared
    int64_t depth = 0;
  };

  struct Copy {
    int32_t page = -1;
    int64_t num_tokens = 0;
  };

  struct StateHit {
    int64_t num_tokens = 0;  // of the text, from its beginning: the state is that behind them
    int32_t slot = -1;
    int32_t page = -1;  // that holds those of them beyond the last full page; -1: there are none
    int64_t num_idle_pages = 0;  // of the full pages before it: those that no sequence uses
  };

  // At most max_pages pages are kept, those in use by sequences included; 0: none. `states`: null
  // for models without recurrent layers.
  PrefixCache(BlockPool& pool, int max_pages, int64_t page_tokens, StateSlots* states = nullptr);
  ~PrefixCache();
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  bool enabled() const { return max_pages_ > 0; }
  int num_kept_pages() const { return num_kept_; }
  int64_t num_evictions() const { return num_evictions_; }
  // Pages that allocate() can give: free ones, and kept ones that no sequence uses.
  int num_available() const { return pool_.num_free() + static_cast<int>(idle_.size()); }

  // A page for one sequence, or nothing when sequences use all of them.
  std::optional<int32_t> allocate();
  // One that was not needed after all.
  void give_back(int32_t page) { pool_.release(page); }

  // Sequences with another salt never see each other's pages. `holding` is empty.
  void attach(Holding& holding, const std::string& salt);

  // Takes the full pages that follow holding.node and hold tokens[depth * page_tokens ..], up to
  // `limit` tokens in all. All of holding.pages are shared ones.
  void adopt(Holding& holding, std::span<const int32_t> tokens, int64_t limit);

  // The page below holding.node that agrees longest with the tokens after the shared ones, and for
  // how many; at least kMinCopiedTokens and never beyond `limit` tokens in all. The page stays as
  // it is until the next call that may evict.
  std::optional<Copy> find_copy(const Holding& holding, std::span<const int32_t> tokens,
                                int64_t limit);

  // Keeps the pages of tokens [0, num_tokens), which are computed; the last one also when it is not
  // full, if `with_tail`. A full page that is kept already replaces the holding's own copy of it.
  void publish(Holding& holding, std::span<const int32_t> tokens, int64_t num_tokens,
               bool with_tail);

  // The snapshot furthest along the tokens after the shared ones, at most `limit` tokens in all.
  // Slot and page stay as they are until the next call that may evict.
  std::optional<StateHit> find_state(const Holding& holding, std::span<const int32_t> tokens,
                                     int64_t limit);

  // After adopt(): a page that the holding's node is followed by was used just now.
  void touch(int32_t page);

  // Whether keep_state() would take a slot.
  bool wants_state(const Holding& holding, std::span<const int32_t> tokens, int64_t num_tokens);
  // The slot holds the state behind tokens [0, num_tokens), which publish() was told of, and is the
  // cache's from now on. False: they are not kept, or have a snapshot; it stays the caller's.
  bool keep_state(const Holding& holding, std::span<const int32_t> tokens, int64_t num_tokens,
                  int32_t slot);

  // Gives all pages back; kept ones stay.
  void release(Holding& holding);

  // Forgets everything, holdings included, which the caller empties by hand. Allocates nothing: for
  // when memory ran out in the middle of something.
  void reset();

 private:
  Node* find_child(Node& parent, std::span<const int32_t> tokens) const;
  bool keep(Node& parent, std::span<const int32_t> tokens, int32_t page);
  void rename(Node& node, std::span<const int32_t> tokens);
  void drop(Node& node);
  bool evict_one();
  void use(Node& node);
  void release_page(int32_t page);
  Node* idle_prefix_of(Node& parent, std::span<const int32_t> tokens) const;
  bool has_states(const Node& node) const;
  Node* node_behind(const Holding& holding, std::span<const int32_t> tokens,
                    int64_t num_tokens) const;

  BlockPool& pool_;
  const int max_pages_;
  const size_t page_tokens_;
  StateSlots* const states_;
  std::map<std::string, std::unique_ptr<Node>> roots_;
  std::vector<Node*> node_of_page_;  // null: not kept
  std::list<Node*> idle_;            // kept and used by no sequence; most recent first
  int num_kept_ = 0;
  int64_t num_evictions_ = 0;
};

}  // namespace invar
