// Sequence: one request's tokens and the pages that hold their keys and values. What the scheduler
// reads is here; what only the engine needs hangs on `reply` (engine/reply.h).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "cache/prefix_cache.h"

namespace invar {

struct Reply;

struct Sequence {
  Sequence();
  ~Sequence();

  int64_t arrival = 0;             // order of submission; the lower number goes first
  std::vector<int32_t> token_ids;  // prompt, then every sampled id
  int64_t num_prompt_tokens = 0;

  // Positions [0, num_cached_tokens) have their keys and values in holding.pages. A sequence that
  // was preempted starts again from what the prefix cache still has and computes the rest of prompt
  // and sampled ids anew, which gives the same values: there is one arithmetic.
  int64_t num_cached_tokens = 0;
  PrefixCache::Holding holding;

  // Of models with recurrent layers: the slot with the state behind num_cached_tokens; -1: none, it
  // waits. At the cuts (ascending) of its prompt the state is kept for others.
  int32_t state_slot = -1;
  std::vector<int64_t> state_cuts;

  std::string cache_salt;              // shares pages only with sequences of the same salt
  bool use_prefix_cache = true;        // false: neither takes nor leaves pages
  int64_t num_reused_tokens = 0;       // of the prompt, found in the prefix cache at first
  std::vector<std::string> page_keys;  // of full pages, in order; disk_pages.h's

  bool all_logits = false;  // teacher forcing: logits of every row, not of the last alone
  bool paused = false;      // its reader is behind: no rows until it caught up
  int num_preemptions = 0;

  int64_t num_uncached_tokens() const {
    return static_cast<int64_t>(token_ids.size()) - num_cached_tokens;
  }

  std::unique_ptr<Reply> reply;
};

}  // namespace invar
