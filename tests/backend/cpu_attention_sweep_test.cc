// Attention over the head shapes of real models: in steps where decoding rows and prompt chunks of
// several sequences run together, at depths across groups and supergroups, every row has the bits
// that it has alone in the portable code. Two forms (sweep.h). That the bits are the right ones is
// cpu_attention_test.cc's.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/attention.h"
#include "backend/cpu_ops_util.h"
#include "backend/sweep.h"
#include "tensor/quant.h"

namespace invar::cpu {
namespace {

using test::full_sweep;

struct Shape {
  int head_dim = 64, num_kv_heads = 1, group = 1;  // `group` query heads read one KV head
  int64_t sliding_window = 0;
  float softcap = 0;
  int64_t q_cols() const { return int64_t{num_kv_heads} * group * head_dim; }
  int64_t kv_cols() const { return int64_t{num_kv_heads} * head_dim; }
  AttentionArgs args() const {
    AttentionArgs args;
    args.num_heads = num_kv_heads * group;
    args.num_kv_heads = num_kv_heads;
    args.head_dim = head_dim;
    args.scale = 1 / std::sqrt(static_cast<float>(head_dim));
    args.sliding_window = sliding_window;
    args.softcap = softcap;
    return args;
  }
};

// A sequence whose first `start` positions are in the cache; the next `num_rows` are the step's.
struct Span {
  int64_t start, num_rows;
};

// A prompt chunk across the end of a supergroup, rows that decode at several depths, the first row
// of a prompt, and one chunk across a group's end.
constexpr Span kStep[] = {{2303, 1}, {2040, 19}, {0, 1}, {251, 9}, {700, 1}, {2048, 1}, {2047, 1}};

struct Sequence {
  Span span;
  std::vector<float> q;     // [num_rows, q_cols]
  std::vector<float> k, v;  // [start + num_rows, kv_cols]
  std::vector<int32_t> pages;
};

// The cache of all sequences, with NaN wherever a row of the step has still to store something.
class Cache {
 public:
  Cache(const Shape& shape, std::vector<Sequence>& sequences) : shape_(shape) {
    int num_pages = 0;
    for (Sequence& s : sequences) {
      s.pages.resize(static_cast<size_t>((s.span.start + s.span.num_rows + 255) / 256));
      for (int32_t& page : s.pages) page = num_pages++;
    }
    const KvLayerShape layers[] = {{shape.num_kv_heads, shape.head_dim}};
    owner_ = std::move(CpuKvCache::make(layers, num_pages)).value();
    for (int page = 0; page < num_pages; ++page)
      for (int head = 0; head < shape.num_kv_heads; ++head) {
        std::fill_n(get().keys(page, 0, head), 256 * shape.head_dim, uint16_t{0x7e00});
        std::fill_n(get().values(page, 0, head), 256 * shape.head_dim, uint16_t{0x7e00});
      }
    for (const Sequence& s : sequences)
      for (int64_t position = 0; position < s.span.start; ++position) put(s, position);
  }
  CpuKvCache& get() { return static_cast<CpuKvCache&>(*owner_); }

  // Writes one position in the layout of kv_cache.h.
  void put(const Sequence& s, int64_t position) {
    const int page = s.pages[static_cast<size_t>(position / 256)];
    const int64_t at = position % 256, dim = shape_.head_dim;
    for (int head = 0; head < shape_.num_kv_heads; ++head) {
      uint16_t* keys = get().keys(page, 0, head) + at / 16 * 16 * dim + at % 16;
      uint16_t* values = get().values(page, 0, head) + at * dim;
      const auto from = static_cast<size_t>(position * shape_.kv_cols() + head * dim);
      for (int64_t d = 0; d < dim; ++d) {
        keys[d * 16] = f32_to_f16(s.k[from + static_cast<size_t>(d)]);
        values[d] = f32_to_f16(s.v[from + static_cast<size_t>(d)]);
      }
    }
  }

 private:
  Shape shape_;
  std::unique_ptr<KvCache> owner_;
};

std::vector<Sequence> make_sequences(const Shape& shape) {
  std::vector<Sequence> sequences;
  uint32_t seed = 1;
  for (const Span& span : kStep) {
    const auto rows = static_cast<size_t>(span.num_rows);
    const auto positions = static_cast<size_t>(span.start) + rows;
    Sequence s;
    s.span = span;
    s.q = random_floats(rows * static_cast<size_t>(shape.q_cols()), seed++, 2);
    s.k = random_floats(positions * static_cast<size_t>(shape.kv_cols()), seed++, 2);
    s.v = random_floats(positions * static_cast<size_t>(shape.kv_cols()), seed++);
    sequences.push_back(std::move(s));
  }
  return sequences;
}

// Runs the rows [first, first + counts) of the given sequences in one step; y of all rows, in
// order.
struct Part {
  const Sequence* sequence;
  int64_t first, count;
};
std::vector<float> attend(const Shape& shape, Cache& cache, const std::vector<Part>& parts,
                          ThreadPool& pool, Isa isa) {
  std::vector<float> q, k, v;
  std::vector<Window> windows;
  int64_t row = 0;
  const auto append = [](std::vector<float>& to, const std::vector<float>& from, int64_t first,
                         int64_t count, int64_t cols) {
    to.insert(to.end(), from.begin() + first * cols, from.begin() + (first + count) * cols);
  };
  for (const Part& part : parts) {
    const Sequence& s = *part.sequence;
    const int64_t position = s.span.start + part.first;
    append(q, s.q, part.first, part.count, shape.q_cols());
    append(k, s.k, position, part.count, shape.kv_cols());
    append(v, s.v, position, part.count, shape.kv_cols());
    windows.push_back({row, part.count, position, s.pages});
    row += part.count;
  }
  std::vector<float> y(q.size(), -7.0f);
  AttentionWorkspace workspace;
  attention(pool, isa, workspace, tensor_of(y, shape.q_cols()), tensor_of(q, shape.q_cols()),
            tensor_of(k, shape.kv_cols()), tensor_of(v, shape.kv_cols()), windows, cache.get(),
            shape.args());
  return y;
}

void expect_rows_as_alone(const Shape& shape) {
  std::vector<Sequence> sequences = make_sequences(shape);
  ThreadPool pools[] = {ThreadPool(1), ThreadPool(2), ThreadPool(3), ThreadPool(4)};
  std::vector<std::vector<float>> alone;  // of each sequence, all rows
  {
    Cache cache(shape, sequences);
    for (const Sequence& s : sequences) {
      std::vector<float>& rows = alone.emplace_back();
      for (int64_t i = 0; i < s.span.num_rows; ++i) {
        const auto y = attend(shape, cache, {{&s, i, 1}}, pools[0], Isa::kPortable);
        ASSERT_FALSE(std::isnan(y[0]));
        rows.insert(rows.end(), y.begin(), y.end());
      }
    }
  }
  std::mt19937 random(3);
  for (Isa isa : testable_isas()) {
    for (int threads = 1; threads <= 4; ++threads) {
      if (!full_sweep() && isa == Isa::kPortable && threads != 2) continue;
      Cache cache(shape, sequences);
      std::vector<Part> parts;
      for (const Sequence& s : sequences) parts.push_back({&s, 0, s.span.num_rows});
      std::shuffle(parts.begin(), parts.end(), random);
      const auto y = attend(shape, cache, parts, pools[threads - 1], isa);
      int64_t row = 0;
      for (const Part& part : parts) {
        const auto& want = alone[static_cast<size_t>(part.sequence - sequences.data())];
        ASSERT_TRUE(
            same_bits(y.data() + row * shape.q_cols(), want.data(), part.count * shape.q_cols()))
            << isa_name(isa) << ", " << threads << " threads, head_dim " << shape.head_dim
            << ", group " << shape.group << ", window " << shape.sliding_window << ", softcap "
            << shape.softcap << ", sequence at " << part.sequence->span.start;
        row += part.count;
      }
    }
  }
}

class AttentionSweep : public testing::TestWithParam<int> {};

TEST_P(AttentionSweep, RowsAreAsAlone) {
  const int head_dim = GetParam();
  for (int group = 1; group <= 8; ++group) {
    if (!full_sweep() && group != 1 && group != 3 && group != 7) continue;
    for (int64_t window : {0, 300, 1024}) {
      for (float softcap : {0.0f, 20.0f}) {
        // The short form takes each choice once.
        if (!full_sweep() && (group == 1) != (window == 300)) continue;
        if (!full_sweep() && (window == 1024 || (group == 7) != (softcap > 0))) continue;
        ASSERT_NO_FATAL_FAILURE(
            expect_rows_as_alone({head_dim, full_sweep() ? 2 : 1, group, window, softcap}));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(HeadDims, AttentionSweep, testing::Values(64, 96, 128, 256));

}  // namespace
}  // namespace invar::cpu
