// Splits attention into units for the pool. A unit is a tile (some rows of a window, one KV head,
// all query heads that read it), and goes through the tile's groups of 256 positions in order;
// where there are too few tiles to occupy the threads (a single sequence decoding), a unit is one
// group of a tile and the groups' states are folded afterwards. Both ways compute and fold the same
// states in the same order (attention_inl.h), so which one runs is a matter of speed.
#include "backend/cpu/attention.h"

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <vector>

#include "backend/cpu/attention_tile.h"
#include "backend/cpu/simd_kernels.h"
#include "base/check.h"

namespace invar::cpu {
namespace {

static_assert(kGroupPositions == kPagePositions);

// Queries of a tile: K and V of a group (64 to 256 KiB) are read once from memory and then, for
// every six queries, from the L2 cache. More queries need more scratch than L2 has beside them.
constexpr int kTileQueries = 96;
// Group states kept for the later fold when units are single groups.
constexpr size_t kMaxGroupStateFloats = size_t{4} << 20;

struct Range {
  int64_t first = 0, last = 0;  // [first, last)
};

struct Tile {
  const Window* window = nullptr;
  int kv_head = 0;
  int64_t row = 0;  // in the window
  int64_t num_rows = 0;
  Range groups;
};

// The whole call, as its units see it.
struct Job {
  const SimdKernels& kernels;
  Tensor y, q, k, v;
  CpuKvCache& cache;
  const AttentionArgs& args;
  int heads_per_kv = 1;
  int64_t state_floats = 0;  // one SoftmaxState's out

  int64_t num_queries(const Tile& tile) const { return tile.num_rows * heads_per_kv; }

  // Keys that the query at `position` may see.
  Range visible(int64_t position) const {
    const int64_t window = args.sliding_window;
    return {window > 0 ? std::max<int64_t>(0, position - window + 1) : 0, position + 1};
  }
  Range tile_groups(const Tile& tile) const {
    const int64_t start = tile.window->start + tile.row;
    return {visible(start).first / kGroupPositions,
            (visible(start + tile.num_rows - 1).last + kGroupPositions - 1) / kGroupPositions};
  }
  // Query i of a tile: row i / heads_per_kv, head i % heads_per_kv of the KV head.
  int64_t batch_row(const Tile& tile, int64_t query) const {
    return tile.window->first_row + tile.row + query / heads_per_kv;
  }
  int64_t column(const Tile& tile, int64_t query) const {
    return (int64_t{tile.kv_head} * heads_per_kv + query % heads_per_kv) * args.head_dim;
  }
};

// Computes the states of the tile's queries for `group`: state_of(i) for query i, left empty where
// the query sees nothing of the group. Then calls done(i) for the others.
template <typename StateOf, typename Done>
void attend(const Job& job, const Tile& tile, int64_t group, float* scores, const StateOf& state_of,
            const Done& done) {
  const int page = tile.window->pages[static_cast<size_t>(group)];
  AttentionTile part;
  part.keys = job.cache.keys(page, job.args.layer, tile.kv_head);
  part.values = job.cache.values(page, job.args.layer, tile.kv_head);
  part.head_dim = job.args.head_dim;
  part.scale = job.args.scale;
  part.softcap = job.args.softcap;
  part.scores = scores;

  const int64_t base = group * kGroupPositions, num_queries = job.num_queries(tile);
  const auto seen = [&](int64_t query) {
    const Range keys = job.visible(tile.window->start + tile.row + query / job.heads_per_kv);
    return Range{std::max<int64_t>(keys.first - base, 0),
                 std::min<int64_t>(keys.last - base, kGroupPositions)};
  };
  int64_t num_seeing = 0;
  for (int64_t i = 0; i < num_queries; ++i) num_seeing += seen(i).first < seen(i).last;
  if (num_seeing == 0) return;
  // Equal parts: 7 queries as 4 and 3, not 6 and 1.
  const int64_t num_parts = (num_seeing + kMaxTileQueries - 1) / kMaxTileQueries;
  const int64_t part_queries = (num_seeing + num_parts - 1) / num_parts;

  int64_t members[kMaxTileQueries];
  const auto flush = [&] {
    if (part.num_queries == 0) return;
    job.kernels.attention.attend_group(part);
    for (int i = 0; i < part.num_queries; ++i) done(members[i]);
    part.num_queries = 0;
  };
  for (int64_t i = 0; i < num_queries; ++i) {
    const Range keys = seen(i);
    if (keys.first >= keys.last) continue;
    TileQuery& query = part.queries[part.num_queries];
    query.q = job.q.row(job.batch_row(tile, i)) + job.column(tile, i);
    query.first = static_cast<int>(keys.first);
    query.last = static_cast<int>(keys.last);
    query.state = state_of(i, part.num_queries);
    members[part.num_queries++] = i;
    if (part.num_queries == part_queries) flush();
  }
  flush();
}

// Folds `later` into `state`, or moves it there when state is empty.
void fold_or_take(const Job& job, SoftmaxState& state, SoftmaxState& later) {
  if (later.empty) return;
  if (state.empty) {
    std::swap(state, later);
  } else {
    job.kernels.attention.fold(state, later, job.args.head_dim);
  }
  later.empty = true;
}

void finish(const Job& job, const Tile& tile, int64_t query, const SoftmaxState& state) {
  INVAR_CHECK(!state.empty, "a row without a visible key");  // it sees itself
  job.kernels.attention.finish(job.y.row(job.batch_row(tile, query)) + job.column(tile, query),
                               state, job.args.head_dim);
}

size_t tile_scratch_floats(const Job& job, int64_t max_queries) {
  return static_cast<size_t>(kMaxTileQueries * kGroupPositions +
                             (2 * max_queries + kMaxTileQueries) * job.state_floats);
}

// A whole tile: groups in order, each folded as it comes.
void run_tile(const Job& job, const Tile& tile, float* scratch) {
  const int64_t num_queries = job.num_queries(tile);
  float* scores = scratch;
  float* next = scratch + kMaxTileQueries * kGroupPositions;
  const auto new_state = [&] {
    SoftmaxState state;
    state.out = next;
    next += job.state_floats;
    return state;
  };
  SoftmaxState super[kTileQueries], total[kTileQueries], fresh[kMaxTileQueries];
  for (int64_t i = 0; i < num_queries; ++i) super[i] = new_state(), total[i] = new_state();
  for (SoftmaxState& state : fresh) state = new_state();

  for (int64_t g = tile.groups.first; g < tile.groups.last; ++g) {
    SoftmaxState* written[kTileQueries];
    attend(
        job, tile, g, scores,
        [&](int64_t query, int slot) {
          return written[query] = super[query].empty ? &super[query] : &fresh[slot];
        },
        [&](int64_t query) {
          if (written[query] != &super[query]) fold_or_take(job, super[query], *written[query]);
        });
    if ((g + 1) % kSupergroupGroups == 0 || g + 1 == tile.groups.last)
      for (int64_t i = 0; i < num_queries; ++i) fold_or_take(job, total[i], super[i]);
  }
  for (int64_t i = 0; i < num_queries; ++i) finish(job, tile, i, total[i]);
}

// One query of a tile whose groups' states are all there, [group][query].
void fold_query(const Job& job, const Tile& tile, int64_t query, SoftmaxState* states) {
  const int64_t num_queries = job.num_queries(tile);
  SoftmaxState super, total;
  for (int64_t g = tile.groups.first; g < tile.groups.last; ++g) {
    fold_or_take(job, super, states[(g - tile.groups.first) * num_queries + query]);
    if ((g + 1) % kSupergroupGroups == 0 || g + 1 == tile.groups.last)
      fold_or_take(job, total, super);
  }
  finish(job, tile, query, total);
}

// Stores the rows' keys and values. A run is rows of one window inside one block of 16 positions.
void store_rows(ThreadPool& pool, const Job& job, std::span<const Window> windows) {
  struct Run {
    const Window* window;
    int64_t row, num_rows;
  };
  std::vector<Run> runs;
  int64_t num_rows = 0;
  for (const Window& window : windows) {
    num_rows += window.num_rows;
    for (int64_t row = 0; row < window.num_rows;) {
      const int64_t in_block = (window.start + row) % kBlockPositions;
      const int64_t count = std::min(window.num_rows - row, kBlockPositions - in_block);
      runs.push_back({&window, row, count});
      row += count;
    }
  }
  const int dim = job.args.head_dim;
  const auto store = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Run& run = runs[static_cast<size_t>(i)];
      for (int64_t row = run.row; row < run.row + run.num_rows; ++row) {
        const int64_t position = run.window->start + row, t = run.window->first_row + row;
        const int page = run.window->pages[static_cast<size_t>(position / kPagePositions)];
        for (int head = 0; head < job.args.num_kv_heads; ++head)
          job.kernels.attention.store_kv(
              job.cache.keys(page, job.args.layer, head),
              job.cache.values(page, job.args.layer, head), job.k.row(t) + int64_t{head} * dim,
              job.v.row(t) + int64_t{head} * dim, dim, static_cast<int>(position % kPagePositions));
      }
    }
  };
  constexpr int64_t kMinSharedRows = 16;  // fewer are stored sooner than a phase starts
  const int64_t num_runs = static_cast<int64_t>(runs.size());
  if (num_rows < kMinSharedRows) {
    store(0, num_runs, 0);
  } else {
    pool.run(num_runs, store);
  }
}

std::vector<Tile> make_tiles(const Job& job, std::span<const Window> windows) {
  const int64_t tile_rows = std::max(1, kTileQueries / job.heads_per_kv);
  std::vector<Tile> tiles;
  for (const Window& window : windows) {
    for (int kv_head = 0; kv_head < job.args.num_kv_heads; ++kv_head) {
      for (int64_t row = 0; row < window.num_rows; row += tile_rows) {
        Tile tile;
        tile.window = &window;
        tile.kv_head = kv_head;
        tile.row = row;
        tile.num_rows = std::min(tile_rows, window.num_rows - row);
        tile.groups = job.tile_groups(tile);
        INVAR_CHECK(tile.groups.last <= static_cast<int64_t>(window.pages.size()),
                    "%zu pages, %ld needed", window.pages.size(), long{tile.groups.last});
        tiles.push_back(tile);
      }
    }
  }
  return tiles;
}

// Later rows see more keys. Spreads heavy and light tiles evenly over the list, so that the pool's
// contiguous shares take equally long: sorted by work, then taken in steps of the golden ratio.
void spread_by_work(std::vector<Tile>& tiles) {
  const size_t n = tiles.size();
  std::sort(tiles.begin(), tiles.end(), [](const Tile& a, const Tile& b) {
    return (a.groups.last - a.groups.first) * a.num_rows >
           (b.groups.last - b.groups.first) * b.num_rows;
  });
  size_t step = std::max<size_t>(1, static_cast<size_t>(0.618 * static_cast<double>(n)));
  while (std::gcd(step, n) != 1) ++step;
  std::vector<Tile> spread;
  spread.reserve(n);
  for (size_t i = 0; i < n; ++i) spread.push_back(tiles[i * step % n]);
  tiles = std::move(spread);
}

void run_tiles(ThreadPool& pool, const Job& job, AttentionWorkspace& workspace,
               std::vector<Tile>& tiles) {
  spread_by_work(tiles);
  int64_t max_queries = 0;
  for (const Tile& tile : tiles) max_queries = std::max(max_queries, job.num_queries(tile));
  const size_t thread_floats = tile_scratch_floats(job, max_queries);
  float* scratch = workspace.floats(thread_floats * static_cast<size_t>(pool.num_threads()));
  pool.run(static_cast<int64_t>(tiles.size()), [&](int64_t begin, int64_t end, int thread) {
    for (int64_t i = begin; i < end; ++i)
      run_tile(job, tiles[static_cast<size_t>(i)],
               scratch + thread_floats * static_cast<size_t>(thread));
  });
}

// Every group of every tile a unit, then the folds.
void run_groups(ThreadPool& pool, const Job& job, AttentionWorkspace& workspace,
                std::vector<Tile>& tiles, size_t num_states) {
  struct Unit {
    const Tile* tile;
    int64_t group;
    SoftmaxState* states;
  };
  const size_t score_floats = kMaxTileQueries * kGroupPositions;
  float* scratch = workspace.floats(score_floats * static_cast<size_t>(pool.num_threads()) +
                                    num_states * static_cast<size_t>(job.state_floats));
  float* out = scratch + score_floats * static_cast<size_t>(pool.num_threads());
  std::vector<SoftmaxState> states(num_states);
  for (SoftmaxState& state : states) state.out = out, out += job.state_floats;

  std::vector<Unit> units;
  SoftmaxState* next = states.data();
  std::vector<SoftmaxState*> tile_states;
  for (const Tile& tile : tiles) {
    tile_states.push_back(next);
    for (int64_t g = tile.groups.first; g < tile.groups.last; ++g) {
      units.push_back({&tile, g, next});
      next += job.num_queries(tile);
    }
  }
  pool.run(static_cast<int64_t>(units.size()), [&](int64_t begin, int64_t end, int thread) {
    float* scores = scratch + score_floats * static_cast<size_t>(thread);
    for (int64_t i = begin; i < end; ++i) {
      const Unit& unit = units[static_cast<size_t>(i)];
      attend(
          job, *unit.tile, unit.group, scores,
          [&](int64_t query, int) { return unit.states + query; }, [](int64_t) {});
    }
  });
  // About 0.1 us a state: shared only where there are many.
  const auto fold = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const Tile& tile = tiles[static_cast<size_t>(i)];
      for (int64_t query = 0; query < job.num_queries(tile); ++query)
        fold_query(job, tile, query, tile_states[static_cast<size_t>(i)]);
    }
  };
  constexpr size_t kMinSharedStates = 200;
  if (num_states < kMinSharedStates) {
    fold(0, static_cast<int64_t>(tiles.size()), 0);
  } else {
    pool.run(static_cast<int64_t>(tiles.size()), fold);
  }
}

}  // namespace

void AttentionWorkspace::Free::operator()(float* p) const { std::free(p); }

float* AttentionWorkspace::floats(size_t num_floats) {
  if (num_floats > capacity_) {
    data_.reset();
    const size_t bytes = (num_floats * sizeof(float) + 63) / 64 * 64;
    data_.reset(static_cast<float*>(std::aligned_alloc(64, bytes)));
    INVAR_CHECK(data_ != nullptr, "no memory for %zu bytes of attention scratch", bytes);
    capacity_ = num_floats;
  }
  return data_.get();
}

void attention(ThreadPool& pool, Isa isa, AttentionWorkspace& workspace, Tensor y, Tensor q,
               Tensor k, Tensor v, std::span<const Window> windows, CpuKvCache& cache,
               const AttentionArgs& args) {
  const KvLayerShape& shape = cache.layer_shape(args.layer);
  INVAR_CHECK(shape.num_kv_heads == args.num_kv_heads && shape.head_dim == args.head_dim,
              "layer %d holds %d x %d, attention has %d x %d", args.layer, shape.num_kv_heads,
              shape.head_dim, args.num_kv_heads, args.head_dim);
  Job job{simd_kernels(isa), y, q, k, v, cache, args};
  job.heads_per_kv = args.num_heads / args.num_kv_heads;
  job.state_floats = padded_dim(args.head_dim);
  INVAR_CHECK(job.heads_per_kv <= kTileQueries, "%d query heads a KV head", job.heads_per_kv);

  store_rows(pool, job, windows);

  std::vector<Tile> tiles = make_tiles(job, windows);
  int64_t num_groups = 0;
  size_t num_states = 0;
  for (const Tile& tile : tiles) {
    num_groups += tile.groups.last - tile.groups.first;
    num_states +=
        static_cast<size_t>((tile.groups.last - tile.groups.first) * job.num_queries(tile));
  }
  const bool few_tiles = static_cast<int64_t>(tiles.size()) < int64_t{4} * pool.num_threads() &&
                         pool.num_threads() > 1;
  if (few_tiles && num_groups > static_cast<int64_t>(tiles.size()) &&
      num_states * static_cast<size_t>(job.state_floats) <= kMaxGroupStateFloats) {
    run_groups(pool, job, workspace, tiles, num_states);
  } else if (!tiles.empty()) {
    run_tiles(pool, job, workspace, tiles);
  }
}

}  // namespace invar::cpu
