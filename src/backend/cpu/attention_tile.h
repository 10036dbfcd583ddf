// What attention.cc hands to the vector kernels of attention_inl.h.
#pragma once

#include <cstdint>

namespace invar::cpu {

inline constexpr int kGroupPositions = 256;  // a group is a page
inline constexpr int kSupergroupGroups = 8;  // 2,048 positions

// Queries (a query is one head of one row) that a kernel takes through a group at once.
inline constexpr int kMaxTileQueries = 6;

// Softmax over some keys: their largest score, the sum of exp(score - max), and the sum of
// exp(score - max) * v, in the padded_dim(head_dim) floats of `out`. empty: no key seen yet.
struct SoftmaxState {
  float max = 0;
  float sum = 0;
  float* out = nullptr;
  bool empty = true;
};

// static: files compiled for different instruction sets must not share one copy (simd.h).
static inline int64_t padded_dim(int head_dim) { return (int64_t{head_dim} + 15) / 16 * 16; }

// One query against one group: keys [first, last) of the group's 256 positions are visible to it,
// first < last. The result goes to `state`.
struct TileQuery {
  const float* q = nullptr;  // [head_dim]
  int first = 0;
  int last = 0;
  SoftmaxState* state = nullptr;
};

// Some queries of one KV head against one group.
struct AttentionTile {
  const uint16_t* keys = nullptr;    // fp16, 16 blocks of [head_dim][16 positions]
  const uint16_t* values = nullptr;  // fp16, [256 positions][head_dim]
  int head_dim = 0;
  float scale = 0;
  float softcap = 0;
  TileQuery queries[kMaxTileQueries];
  int num_queries = 0;
  float* scores = nullptr;  // scratch: [kMaxTileQueries][256]
};

struct AttentionKernels {
  void (*attend_group)(const AttentionTile& tile);
  // state = fold of state (not empty) and later (not empty).
  void (*fold)(SoftmaxState& state, const SoftmaxState& later, int head_dim);
  // y = out / sum, head_dim values.
  void (*finish)(float* y, const SoftmaxState& state, int head_dim);
  // One position of one KV head into its page: k and v of head_dim values; position 0..255.
  void (*store_kv)(uint16_t* keys, uint16_t* values, const float* k, const float* v, int head_dim,
                   int position);
};

}  // namespace invar::cpu
