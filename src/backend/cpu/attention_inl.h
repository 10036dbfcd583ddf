// Attention of a few queries over one group of 256 positions, and the fold of groups. Included by
// simd_kernels_<set>.cc. The arithmetic of a query, which nothing else may change:
//
//   group g: the absolute positions [256 g, 256 g + 256). Of its visible keys j, ascending:
//     s_j = scale * (chain over dim ascending of fma(k[dim], q[dim], chain), from +0)
//     s_j = softcap * tanh(s_j / softcap)      where there is a softcap
//     m   = the largest s_j;  p_j = exp(s_j - m)
//     l   = 16 lane sums of p_j (lane j % 16, ascending), then the tree 8, 4, 2, 1
//     O   = chain over j ascending of fma(p_j, v_j, O), from +0
//   fold of (m, l, O) with a later (m', l', O'):
//     M = max(m, m');  a = exp(m - M);  b = exp(m' - M)
//     l = fma(l', b, l * a);  O = fma(O', b, O * a);  m = M
//   Groups fold in ascending order inside a supergroup of 2,048 positions (8 groups), and finished
//   supergroups in ascending order. result = O / l.
//
// The order is a function of absolute positions alone. So it cannot matter how a prompt was cut
// into chunks, which pages hold it, which rows ran together or which thread took which group: a
// group's state is computed whole, somewhere, and folded in this order. Keys that are not visible
// are left out, which is the same as giving them p = 0: l + 0 and fma(0, v, O) change no bit of a
// finite v. (They are left out rather than multiplied so that an infinity or NaN in a row that the
// query must not see cannot reach it: 0 * inf is NaN.) A group without visible keys is left out for
// the same reason: its fold would have a = exp(0) = 1 and b = exp(-inf) = 0.
//
// Speed: a vector is 16 positions of one dim (scores) or 16 dims of one position (values), widened
// once and used by all queries of the tile, whose accumulators stay in registers.

namespace invar::cpu::INVAR_SIMD_SET {
namespace {

// The scores of kQueries queries for kBlocks blocks of 16 positions, scaled.
template <int kQueries, int kBlocks>
INVAR_INLINE void score_blocks(const AttentionTile& tile, int block) {
  const int64_t dim = tile.head_dim;
  const uint16_t* keys = tile.keys + block * dim * 16;
  const float* q[kQueries];
  INVAR_UNROLL for (int i = 0; i < kQueries; ++i) q[i] = tile.queries[i].q;
  Vec acc[kQueries][kBlocks];
  INVAR_UNROLL for (int i = 0; i < kQueries; ++i) {
    INVAR_UNROLL for (int b = 0; b < kBlocks; ++b) acc[i][b] = zero();
  }
  for (int64_t d = 0; d < dim; ++d) {
    Vec k[kBlocks];
    INVAR_UNROLL for (int b = 0; b < kBlocks; ++b) k[b] = load_f16(keys + (b * dim + d) * 16);
    INVAR_UNROLL for (int i = 0; i < kQueries; ++i) {
      const Vec x = splat(q[i][d]);
      INVAR_UNROLL for (int b = 0; b < kBlocks; ++b) acc[i][b] = fma(k[b], x, acc[i][b]);
    }
  }
  const Vec scale = splat(tile.scale);
  INVAR_UNROLL for (int i = 0; i < kQueries; ++i) {
    INVAR_UNROLL for (int b = 0; b < kBlocks; ++b) {
      store(tile.scores + i * kGroupPositions + (block + b) * 16, mul(acc[i][b], scale));
    }
  }
}

// Scores become p_j in place (0 where not visible); fills max and sum of the query's state.
void softmax_group(const AttentionTile& tile, int index) {
  const TileQuery& query = tile.queries[index];
  float* s = tile.scores + index * kGroupPositions;
  const int first_block = query.first / 16, end_block = (query.last + 15) / 16;
  const auto visible = [&](int block) {
    return lanes(query.first - block * 16, query.last - block * 16);
  };
  if (tile.softcap > 0) {
    const Vec cap = splat(tile.softcap);
    for (int b = first_block; b < end_block; ++b) store(s + b * 16, softcap(load(s + b * 16), cap));
  }
  const Vec minus_infinity = splat(-__builtin_inff());
  Vec top = minus_infinity;
  for (int b = first_block; b < end_block; ++b)
    top = max(select(visible(b), load(s + b * 16), minus_infinity), top);
  const float m = largest(top);
  Vec sums = zero();
  for (int b = first_block; b < end_block; ++b) {
    const Vec p = select(visible(b), exp(sub(load(s + b * 16), splat(m))), zero());
    store(s + b * 16, p);
    sums = add(sums, p);
  }
  query.state->max = m;
  query.state->sum = sum(sums);
  query.state->empty = false;
}

// O += p_j v_j for positions [first, last), kVecs vectors of dims from `dim` on, queries [query,
// ..).
template <int kQueries, int kVecs>
INVAR_INLINE void add_values(const AttentionTile& tile, int query, int64_t dim, int first,
                             int last) {
  const float* p = tile.scores + query * kGroupPositions;
  const uint16_t* values = tile.values + dim;
  Vec acc[kQueries][kVecs];
  INVAR_UNROLL for (int i = 0; i < kQueries; ++i) {
    INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
      acc[i][c] = load(tile.queries[query + i].state->out + dim + c * 16);
    }
  }
  for (int64_t j = first; j < last; ++j) {
    Vec v[kVecs];
    INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
      v[c] = load_f16(values + j * tile.head_dim + c * 16);
    }
    INVAR_UNROLL for (int i = 0; i < kQueries; ++i) {
      const Vec x = splat(p[i * kGroupPositions + j]);
      INVAR_UNROLL for (int c = 0; c < kVecs; ++c) acc[i][c] = fma(x, v[c], acc[i][c]);
    }
  }
  INVAR_UNROLL for (int i = 0; i < kQueries; ++i) {
    INVAR_UNROLL for (int c = 0; c < kVecs; ++c) {
      store(tile.queries[query + i].state->out + dim + c * 16, acc[i][c]);
    }
  }
}

// How many vectors beside each of n queries fill the accumulators.
constexpr int vecs_beside(int n) {
  const int fit = kNumAccumulators / n;
  return fit >= 4 ? 4 : fit >= 2 ? 2 : 1;
}

template <int kQueries>
void score_group(const AttentionTile& tile, int first_block, int end_block) {
  constexpr int kBlocks = vecs_beside(kQueries);
  int block = first_block;
  for (; block + kBlocks <= end_block; block += kBlocks)
    score_blocks<kQueries, kBlocks>(tile, block);
  for (; block < end_block; ++block) score_blocks<kQueries, 1>(tile, block);
}

template <int kQueries>
void add_all_values(const AttentionTile& tile, int query, int first, int last) {
  constexpr int kVecs = vecs_beside(kQueries);
  const int64_t end = padded_dim(tile.head_dim);
  int64_t dim = 0;
  for (; dim + kVecs * 16 <= end; dim += kVecs * 16)
    add_values<kQueries, kVecs>(tile, query, dim, first, last);
  for (; dim < end; dim += 16) add_values<kQueries, 1>(tile, query, dim, first, last);
}

template <int kQueries>
void attend_group_with(const AttentionTile& tile) {
  int first = kGroupPositions, last = 0;          // seen by some query
  int all_first = 0, all_last = kGroupPositions;  // seen by every query
  for (int i = 0; i < kQueries; ++i) {
    const TileQuery& query = tile.queries[i];
    if (query.first < first) first = query.first;
    if (query.last > last) last = query.last;
    if (query.first > all_first) all_first = query.first;
    if (query.last < all_last) all_last = query.last;
  }
  score_group<kQueries>(tile, first / 16, (last + 15) / 16);
  for (int i = 0; i < kQueries; ++i) {
    softmax_group(tile, i);
    float* out = tile.queries[i].state->out;
    const int64_t end = padded_dim(tile.head_dim);
    for (int64_t d = 0; d < end; d += 16) store(out + d, zero());
  }
  // Each query's positions in ascending order: those that not all see one query at a time.
  if (all_first >= all_last) {
    for (int i = 0; i < kQueries; ++i)
      add_all_values<1>(tile, i, tile.queries[i].first, tile.queries[i].last);
    return;
  }
  for (int i = 0; i < kQueries; ++i)
    if (tile.queries[i].first < all_first)
      add_all_values<1>(tile, i, tile.queries[i].first, all_first);
  add_all_values<kQueries>(tile, 0, all_first, all_last);
  for (int i = 0; i < kQueries; ++i)
    if (all_last < tile.queries[i].last) add_all_values<1>(tile, i, all_last, tile.queries[i].last);
}

void attend_group(const AttentionTile& tile) {
  static_assert(kMaxTileQueries == 6);
  switch (tile.num_queries) {
    case 1:
      return attend_group_with<1>(tile);
    case 2:
      return attend_group_with<2>(tile);
    case 3:
      return attend_group_with<3>(tile);
    case 4:
      return attend_group_with<4>(tile);
    case 5:
      return attend_group_with<5>(tile);
    default:
      return attend_group_with<6>(tile);
  }
}

void fold_states(SoftmaxState& state, const SoftmaxState& later, int head_dim) {
  const float m = state.max > later.max ? state.max : later.max;
  const Vec a = exp(splat(state.max - m)), b = exp(splat(later.max - m));
  const int64_t end = padded_dim(head_dim);
  for (int64_t d = 0; d < end; d += 16)
    store(state.out + d, fma(load(later.out + d), b, mul(load(state.out + d), a)));
  float l[16];
  store(l, fma(splat(later.sum), b, mul(splat(state.sum), a)));
  state.max = m;
  state.sum = l[0];
}

void finish_state(float* y, const SoftmaxState& state, int head_dim) {
  const Vec l = splat(state.sum);
  int d = 0;
  for (; d + 16 <= head_dim; d += 16) store(y + d, div(load(state.out + d), l));
  if (d < head_dim) store_first(y + d, div(load(state.out + d), l), head_dim - d);
}

void store_kv(uint16_t* keys, uint16_t* values, const float* k, const float* v, int head_dim,
              int position) {
  uint16_t* key_lane = keys + int64_t{position / 16} * head_dim * 16 + position % 16;
  uint16_t* value = values + int64_t{position} * head_dim;
  uint16_t half[16];
  for (int d = 0; d < head_dim; d += 16) {
    const int count = head_dim - d < 16 ? head_dim - d : 16;
    store_f16(half, load_first(k + d, count));
    for (int i = 0; i < count; ++i) key_lane[int64_t{d + i} * 16] = half[i];
    store_f16(half, load_first(v + d, count));
    for (int i = 0; i < count; ++i) value[d + i] = half[i];
  }
}

}  // namespace
}  // namespace invar::cpu::INVAR_SIMD_SET
