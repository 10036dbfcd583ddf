// The tree of kept pages and the order in which they give way.
//
// idle_ is ordered such that a page comes before the pages that followed it: a sequence gives its
// pages back from the last to the first, and whoever uses a page uses all before it. So the last of
// idle_ has no children, and can go.
#include "cache/prefix_cache.h"

#include <algorithm>

#include "base/check.h"

namespace invar {
namespace {

using Tokens = std::span<const int32_t>;

// Lexicographic, so that the best match of a text is one of its two neighbours.
struct TokenOrder {
  using is_transparent = void;
  bool operator()(Tokens a, Tokens b) const {
    return std::lexicographical_compare(a.begin(), a.end(), b.begin(), b.end());
  }
};

size_t common_length(Tokens a, Tokens b) {
  const size_t length = std::min(a.size(), b.size());
  return static_cast<size_t>(
      std::mismatch(a.begin(), a.begin() + static_cast<ptrdiff_t>(length), b.begin()).first -
      a.begin());
}

}  // namespace

struct PrefixCache::Node {
  Node* parent = nullptr;  // null: a root
  int32_t page = -1;
  std::vector<int32_t> tokens;  // fewer than a page's: the page is a tail
  std::map<std::vector<int32_t>, std::unique_ptr<Node>, TokenOrder> children;
  // Its place in idle_, or here while it is in use: taking it in and out allocates nothing.
  std::list<Node*> place = {this};
  std::list<Node*>::iterator idle = place.begin();
  bool is_idle = false;
  int64_t num_attached = 0;  // of a root
  const std::string* salt = nullptr;
};

PrefixCache::PrefixCache(BlockPool& pool, int max_pages, int64_t page_tokens, StateSlots* states)
    : pool_(pool),
      max_pages_(max_pages),
      page_tokens_(static_cast<size_t>(page_tokens)),
      states_(states),
      node_of_page_(static_cast<size_t>(pool.num_pages())) {}

PrefixCache::~PrefixCache() = default;

std::optional<int32_t> PrefixCache::allocate() {
  if (pool_.num_free() == 0 && !evict_one()) return std::nullopt;
  return pool_.allocate();
}

void PrefixCache::attach(Holding& holding, const std::string& salt) {
  INVAR_CHECK(holding.node == nullptr && holding.pages.empty(), "attached twice");
  if (!enabled()) return;
  auto found = roots_.find(salt);
  if (found == roots_.end()) {
    found = roots_.emplace(salt, std::make_unique<Node>()).first;
    found->second->salt = &found->first;
  }
  holding.node = found->second.get();
  ++holding.node->num_attached;
}

void PrefixCache::adopt(Holding& holding, Tokens tokens, int64_t limit) {
  if (holding.node == nullptr) return;
  INVAR_CHECK(holding.depth == static_cast<int64_t>(holding.pages.size()), "adopts amid own pages");
  const size_t end = std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(limit, 0)));
  for (;;) {
    const size_t at = static_cast<size_t>(holding.depth) * page_tokens_;
    if (at + page_tokens_ > end) return;
    Node* child = find_child(*holding.node, tokens.subspan(at, page_tokens_));
    if (child == nullptr) return;
    use(*child);
    holding.pages.push_back(child->page);
    holding.node = child;
    ++holding.depth;
  }
}

std::optional<PrefixCache::Copy> PrefixCache::find_copy(const Holding& holding, Tokens tokens,
                                                        int64_t limit) {
  if (holding.node == nullptr) return std::nullopt;
  const size_t at = static_cast<size_t>(holding.depth) * page_tokens_;
  const size_t end = std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(limit, 0)));
  if (at >= end) return std::nullopt;
  const Tokens wanted = tokens.subspan(at, std::min(end - at, page_tokens_));
  const auto& children = holding.node->children;
  const auto next = children.lower_bound(wanted);
  Node* best = nullptr;
  size_t longest = static_cast<size_t>(kMinCopiedTokens) - 1;
  const auto consider = [&](const auto& entry) {
    const size_t length = common_length(entry->first, wanted);
    if (length <= longest) return;
    longest = length;
    best = entry->second.get();
  };
  if (next != children.end()) consider(next);
  if (next != children.begin()) consider(std::prev(next));
  if (best == nullptr) return std::nullopt;
  if (best->is_idle) idle_.splice(idle_.begin(), idle_, best->idle);
  return Copy{best->page, static_cast<int64_t>(longest)};
}

void PrefixCache::publish(Holding& holding, Tokens tokens, int64_t num_tokens, bool with_tail) {
  if (holding.node == nullptr) return;
  const size_t end = static_cast<size_t>(num_tokens);
  INVAR_CHECK(end <= tokens.size() && end <= holding.pages.size() * page_tokens_,
              "%zu tokens in %zu pages", end, holding.pages.size());
  for (;;) {
    const size_t at = static_cast<size_t>(holding.depth) * page_tokens_;
    if (at >= end) return;
    const bool is_full = at + page_tokens_ <= end;
    if (!is_full && !with_tail) return;
    const Tokens key = tokens.subspan(at, std::min(page_tokens_, end - at));
    int32_t& page = holding.pages[static_cast<size_t>(holding.depth)];
    Node* own = node_of_page_[static_cast<size_t>(page)];  // kept before, with fewer tokens
    Node* same = find_child(*holding.node, key);
    if (!is_full) {
      if (own != nullptr && own != same && same == nullptr) rename(*own, key);
      if (own == nullptr && same == nullptr) keep(*holding.node, key, page);
      return;
    }
    if (same != nullptr && same != own) {  // somebody computed the same page: one is enough
      if (own != nullptr) {
        if (states_ != nullptr) states_->move_all(own, same);
        drop(*own);
      }
      use(*same);
      release_page(page);
      page = same->page;
    } else if (own != nullptr) {
      if (own != same) rename(*own, key);
    } else if (!keep(*holding.node, key, page)) {
      return;  // no room; tried again with the next page
    }
    holding.node = node_of_page_[static_cast<size_t>(page)];
    ++holding.depth;
  }
}

std::optional<PrefixCache::StateHit> PrefixCache::find_state(const Holding& holding, Tokens tokens,
                                                             int64_t limit) {
  if (holding.node == nullptr || states_ == nullptr) return std::nullopt;
  const size_t end = std::min(tokens.size(), static_cast<size_t>(std::max<int64_t>(limit, 0)));
  const StateSlots::Snapshots& all = states_->snapshots();
  auto best = all.end(), nearest = all.end();
  size_t furthest = 0, first = end + 1;
  Node* node = holding.node;
  for (size_t at = static_cast<size_t>(holding.depth) * page_tokens_; node != nullptr;
       at += page_tokens_) {
    for (auto it = all.begin(); it != all.end(); ++it) {
      const Node& owner = *static_cast<const Node*>(it->owner);
      const auto length = static_cast<size_t>(it->num_tokens);
      const size_t position = at + length;
      if (owner.parent != node || position > end || (position <= furthest && position >= first))
        continue;
      if (common_length(Tokens(owner.tokens), tokens.subspan(at, length)) < length) continue;
      if (position < first) {
        nearest = it;
        first = position;
      }
      if (position > furthest) {
        best = it;
        furthest = position;
      }
    }
    if (at + page_tokens_ > end) break;
    node = find_child(*node, tokens.subspan(at, page_tokens_));
  }
  if (best == all.end()) return std::nullopt;
  StateHit hit{static_cast<int64_t>(furthest), best->slot, -1};
  const Node* last = static_cast<const Node*>(best->owner);
  if (furthest % page_tokens_ != 0) {
    hit.page = last->page;
    last = last->parent;
  }
  for (; last != holding.node; last = last->parent) hit.num_idle_pages += last->is_idle ? 1 : 0;
  // One near the beginning serves other conversations too, and would else be the first to go.
  states_->use(nearest);
  states_->use(best);
  return hit;
}

void PrefixCache::touch(int32_t page) {
  Node* const node = node_of_page_[static_cast<size_t>(page)];
  if (node != nullptr && node->is_idle) idle_.splice(idle_.begin(), idle_, node->idle);
}

bool PrefixCache::wants_state(const Holding& holding, Tokens tokens, int64_t num_tokens) {
  if (states_ == nullptr || holding.node == nullptr) return false;
  const Node* const node = node_behind(holding, tokens, num_tokens);
  const auto page_tokens = static_cast<int64_t>(page_tokens_);
  return node != nullptr && !states_->use_if_there(node, (num_tokens - 1) % page_tokens + 1);
}

bool PrefixCache::keep_state(const Holding& holding, Tokens tokens, int64_t num_tokens,
                             int32_t slot) {
  INVAR_CHECK(num_tokens > 0 && static_cast<size_t>(num_tokens) <= tokens.size(),
              "a state behind %ld of %zu tokens", long{num_tokens}, tokens.size());
  if (states_ == nullptr || holding.node == nullptr) return false;
  const Node* const node = node_behind(holding, tokens, num_tokens);
  if (node == nullptr) return false;
  const auto page_tokens = static_cast<int64_t>(page_tokens_);
  return states_->keep(node, (num_tokens - 1) % page_tokens + 1, slot);
}

// That of the page with token num_tokens - 1.
PrefixCache::Node* PrefixCache::node_behind(const Holding& holding, Tokens tokens,
                                            int64_t num_tokens) const {
  const int64_t index = (num_tokens - 1) / static_cast<int64_t>(page_tokens_);
  if (index < holding.depth) {
    Node* node = holding.node;
    for (int64_t depth = holding.depth; depth > index + 1; --depth) node = node->parent;
    return node;
  }
  if (index > holding.depth) return nullptr;
  const auto at = static_cast<size_t>(index) * page_tokens_;
  const auto length = static_cast<size_t>(num_tokens) - at;
  Node* const own = node_of_page_[static_cast<size_t>(holding.pages[static_cast<size_t>(index)])];
  if (own != nullptr && own->tokens.size() >= length) return own;
  return find_child(*holding.node, tokens.subspan(at, length));
}

void PrefixCache::release(Holding& holding) {
  Node* root = holding.node;
  while (root != nullptr && root->parent != nullptr) root = root->parent;
  for (size_t i = holding.pages.size(); i-- > 0;) release_page(holding.pages[i]);
  holding = {};
  if (root == nullptr) return;
  --root->num_attached;
  if (root->num_attached == 0 && root->children.empty()) roots_.erase(roots_.find(*root->salt));
}

void PrefixCache::reset() {
  if (states_ != nullptr) states_->reset();
  idle_.clear();
  roots_.clear();
  std::fill(node_of_page_.begin(), node_of_page_.end(), nullptr);
  num_kept_ = 0;
  pool_.reset();
}

PrefixCache::Node* PrefixCache::find_child(Node& parent, Tokens tokens) const {
  const auto found = parent.children.find(tokens);
  return found == parent.children.end() ? nullptr : found->second.get();
}

// A new node for a page that a sequence uses. False: the cache is full of pages in use.
bool PrefixCache::keep(Node& parent, Tokens tokens, int32_t page) {
  // A tail that nobody uses and that this page says again goes; its states come here.
  if (Node* prefix = idle_prefix_of(parent, tokens); prefix != nullptr && !has_states(*prefix))
    drop(*prefix);
  if (num_kept_ >= max_pages_ && !evict_one()) return false;
  auto node = std::make_unique<Node>();
  node->parent = &parent;
  node->page = page;
  node->tokens.assign(tokens.begin(), tokens.end());
  std::vector<int32_t> key = node->tokens;
  Node* kept = node.get();
  parent.children.emplace(std::move(key), std::move(node));
  // Nothing below allocates: where memory runs out, the page was not kept.
  pool_.retain(page);
  node_of_page_[static_cast<size_t>(page)] = kept;
  ++num_kept_;
  if (states_ == nullptr) return true;
  if (Node* prefix = idle_prefix_of(parent, tokens)) {
    states_->move_all(prefix, kept);
    drop(*prefix);
  }
  return true;
}

void PrefixCache::rename(Node& node, Tokens tokens) {
  auto& siblings = node.parent->children;
  std::vector<int32_t> key(tokens.begin(), tokens.end()), own = key;
  auto entry = siblings.extract(node.tokens);
  node.tokens = std::move(own);
  entry.key() = std::move(key);
  siblings.insert(std::move(entry));
}

PrefixCache::Node* PrefixCache::idle_prefix_of(Node& parent, Tokens tokens) const {
  const auto next = parent.children.lower_bound(tokens);
  if (next == parent.children.begin()) return nullptr;
  Node& before = *std::prev(next)->second;
  const bool is_prefix = before.tokens.size() < tokens.size() &&
                         common_length(before.tokens, tokens) == before.tokens.size();
  return is_prefix && before.is_idle && before.children.empty() ? &before : nullptr;
}

bool PrefixCache::has_states(const Node& node) const {
  if (states_ == nullptr) return false;
  const StateSlots::Snapshots& all = states_->snapshots();
  return std::any_of(all.begin(), all.end(),
                     [&](const StateSlots::Snapshot& snapshot) { return snapshot.owner == &node; });
}

void PrefixCache::drop(Node& node) {
  INVAR_CHECK(node.children.empty(), "a page goes before those that followed it");
  if (node.is_idle) idle_.erase(node.idle);
  if (states_ != nullptr) states_->drop_all_of(&node);
  node_of_page_[static_cast<size_t>(node.page)] = nullptr;
  pool_.release(node.page);
  --num_kept_;
  Node& parent = *node.parent;
  parent.children.erase(parent.children.find(Tokens(node.tokens)));
  if (parent.parent == nullptr && parent.num_attached == 0 && parent.children.empty())
    roots_.erase(roots_.find(*parent.salt));
}

bool PrefixCache::evict_one() {
  if (idle_.empty()) return false;
  drop(*idle_.back());
  ++num_evictions_;
  return true;
}

void PrefixCache::use(Node& node) {
  pool_.retain(node.page);
  if (node.is_idle) node.place.splice(node.place.begin(), idle_, node.idle);
  node.is_idle = false;
}

void PrefixCache::release_page(int32_t page) {
  pool_.release(page);
  Node* node = node_of_page_[static_cast<size_t>(page)];
  if (node == nullptr || pool_.num_users(page) > 1) return;
  idle_.splice(idle_.begin(), node->place, node->idle);
  node->is_idle = true;
}

}  // namespace invar
