// Attention of the cpu backend: against softmax in double over fp16 keys and values, and bits equal
// whatever the instruction set, threads, chunks, pages and neighbours.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "backend/cpu/attention.h"
#include "backend/cpu_ops_util.h"
#include "tensor/quant.h"

namespace invar::cpu {
namespace {

struct Shape {
  int num_heads = 4;
  int num_kv_heads = 2;
  int head_dim = 16;
  int64_t sliding_window = 0;
  float softcap = 0;
  float scale = 0.25f;
};

// One sequence: everything that attention reads of it.
struct Sequence {
  int64_t length = 0;
  std::vector<float> q, k, v;

  Sequence(const Shape& shape, int64_t num_positions, uint32_t seed) : length(num_positions) {
    const auto size = [&](int heads) {
      return static_cast<size_t>(num_positions * heads * shape.head_dim);
    };
    q = random_floats(size(shape.num_heads), seed, 1.5f);
    k = random_floats(size(shape.num_kv_heads), seed + 1, 1.5f);
    v = random_floats(size(shape.num_kv_heads), seed + 2);
  }
};

struct Way {
  Isa isa = best_isa();
  int num_threads = 1;
  int64_t chunk = 1 << 30;
  bool reversed_pages = false;
  bool noisy_neighbours = false;  // windows of inf and NaN rows before and after ours in each call
  int64_t poison_from = -1;       // our own rows from this position on are NaN
};

int64_t columns(int heads, const Shape& shape) { return int64_t{heads} * shape.head_dim; }

// The outputs of all rows, [length, num_heads * head_dim].
std::vector<float> attend(const Shape& shape, const Sequence& sequence, const Way& way) {
  const int num_pages = static_cast<int>((sequence.length + 255) / 256);
  const int total_pages = num_pages + 2;
  const KvLayerShape layers[] = {{1, 8}, {shape.num_kv_heads, shape.head_dim}};
  std::unique_ptr<KvCache> owner = std::move(CpuKvCache::make(layers, total_pages)).value();
  CpuKvCache& cache = static_cast<CpuKvCache&>(*owner);
  // What a former owner left behind must not matter.
  for (int page = 0; page < total_pages; ++page) {
    for (int head = 0; head < shape.num_kv_heads; ++head) {
      std::fill_n(cache.keys(page, 1, head), 256 * shape.head_dim, uint16_t{0x7e00});
      std::fill_n(cache.values(page, 1, head), 256 * shape.head_dim, uint16_t{0xfc00});
    }
  }
  std::vector<int32_t> pages(static_cast<size_t>(num_pages));
  std::iota(pages.begin(), pages.end(), 0);
  if (way.reversed_pages) std::reverse(pages.begin(), pages.end());
  const int32_t noise_pages[2] = {num_pages, num_pages + 1};

  AttentionArgs args;
  args.layer = 1;
  args.num_heads = shape.num_heads;
  args.num_kv_heads = shape.num_kv_heads;
  args.head_dim = shape.head_dim;
  args.scale = shape.scale;
  args.sliding_window = shape.sliding_window;
  args.softcap = shape.softcap;

  ThreadPool pool(way.num_threads);
  AttentionWorkspace workspace;
  const int64_t q_cols = columns(shape.num_heads, shape);
  const int64_t kv_cols = columns(shape.num_kv_heads, shape);
  const int64_t noise = way.noisy_neighbours ? 3 : 0;
  std::vector<float> result;
  for (int64_t start = 0; start < sequence.length; start += way.chunk) {
    const int64_t count = std::min(way.chunk, sequence.length - start);
    const auto rows_of = [&](const std::vector<float>& all, int64_t cols) {
      std::vector<float> rows(static_cast<size_t>((count + 2 * noise) * cols));
      for (size_t i = 0; i < rows.size(); ++i)
        rows[i] = i % 3 == 0 ? kNan : i % 3 == 1 ? kInf : -kInf;
      std::copy_n(all.begin() + start * cols, count * cols, rows.begin() + noise * cols);
      if (way.poison_from >= 0)
        for (int64_t row = std::max<int64_t>(way.poison_from - start, 0); row < count; ++row)
          std::fill_n(rows.begin() + (noise + row) * cols, cols, row % 2 ? kNan : kInf);
      return rows;
    };
    std::vector<float> q = rows_of(sequence.q, q_cols), k = rows_of(sequence.k, kv_cols);
    std::vector<float> v = rows_of(sequence.v, kv_cols);
    std::vector<float> y(q.size(), -7.0f);
    std::vector<Window> windows;
    if (noise > 0) windows.push_back({0, noise, 100, std::span(noise_pages, 1)});
    windows.push_back({noise, count, start, pages});
    if (noise > 0) windows.push_back({noise + count, noise, 5, std::span(noise_pages + 1, 1)});
    attention(pool, way.isa, workspace, tensor_of(y, q_cols), tensor_of(q, q_cols),
              tensor_of(k, kv_cols), tensor_of(v, kv_cols), windows, cache, args);
    result.insert(result.end(), y.begin() + noise * q_cols, y.begin() + (noise + count) * q_cols);
  }
  return result;
}

// The same by the definition, in double; keys and values as the cache holds them.
std::vector<double> attend_exactly(const Shape& shape, const Sequence& s, int64_t position) {
  const int64_t q_cols = columns(shape.num_heads, shape);
  const int64_t kv_cols = columns(shape.num_kv_heads, shape);
  std::vector<double> out(static_cast<size_t>(q_cols), 0);
  const auto half = [](float x) { return static_cast<double>(f16_to_f32(f32_to_f16(x))); };
  const int64_t first =
      shape.sliding_window > 0 ? std::max<int64_t>(0, position - shape.sliding_window + 1) : 0;
  for (int h = 0; h < shape.num_heads; ++h) {
    const int64_t kv = h / (shape.num_heads / shape.num_kv_heads) * shape.head_dim;
    const int64_t column = int64_t{h} * shape.head_dim;
    std::vector<double> scores;
    for (int64_t j = first; j <= position; ++j) {
      double dot = 0;
      for (int d = 0; d < shape.head_dim; ++d)
        dot += half(s.k[static_cast<size_t>(j * kv_cols + kv + d)]) *
               static_cast<double>(s.q[static_cast<size_t>(position * q_cols + column + d)]);
      dot *= static_cast<double>(shape.scale);
      const double cap = static_cast<double>(shape.softcap);
      scores.push_back(cap > 0 ? cap * std::tanh(dot / cap) : dot);
    }
    const double top = *std::max_element(scores.begin(), scores.end());
    double sum = 0;
    for (double& score : scores) sum += score = std::exp(score - top);
    for (int64_t j = first; j <= position; ++j)
      for (int d = 0; d < shape.head_dim; ++d)
        out[static_cast<size_t>(column + d)] +=
            scores[static_cast<size_t>(j - first)] / sum *
            half(s.v[static_cast<size_t>(j * kv_cols + kv + d)]);
  }
  return out;
}

void expect_near_exact(const Shape& shape, const Sequence& s, const std::vector<float>& got,
                       std::initializer_list<int64_t> positions) {
  const int64_t q_cols = columns(shape.num_heads, shape);
  for (int64_t position : positions) {
    if (position >= s.length) continue;
    const std::vector<double> want = attend_exactly(shape, s, position);
    double worst = 0;
    for (int64_t i = 0; i < q_cols; ++i)
      worst = std::max(
          worst, std::fabs(want[static_cast<size_t>(i)] -
                           static_cast<double>(got[static_cast<size_t>(position * q_cols + i)])));
    EXPECT_LT(worst, 2e-5) << "position " << position << ", window " << shape.sliding_window
                           << ", head_dim " << shape.head_dim;
  }
}

TEST(CpuAttention, IsSoftmaxOfScoresTimesValues) {
  const Shape shape;
  const Sequence s(shape, 4200, 1);
  const std::vector<float> y = attend(shape, s, {});
  expect_near_exact(shape, s, y, {0, 1, 15, 16, 254, 255, 256, 257, 2046, 2047, 2048, 2049, 4199});
}

TEST(CpuAttention, HeadShapes) {
  for (const auto& [heads, kv_heads, dim] : {std::array{9, 3, 64},
                                             {14, 2, 64},
                                             {4, 1, 256},
                                             {5, 5, 80},
                                             {8, 1, 128},
                                             {1, 1, 1},
                                             {7, 1, 20},
                                             {12, 1, 16},
                                             {32, 2, 33}}) {
    const Shape shape{heads, kv_heads, dim, 0, 0, 0.5f / std::sqrt(static_cast<float>(dim))};
    const Sequence s(shape, 290, 2);
    const std::vector<float> y = attend(shape, s, {});
    expect_near_exact(shape, s, y, {0, 3, 100, 255, 256, 289});
    for (Isa isa : testable_isas())
      EXPECT_TRUE(same_bits(y, attend(shape, s, {.isa = isa, .num_threads = 2, .chunk = 48})))
          << isa_name(isa) << " " << heads << " " << kv_heads << " " << dim;
  }
}

TEST(CpuAttention, BitsDoNotDependOnChunksThreadsAndPages) {
  const Shape shape;
  const Sequence s(shape, 2310, 3);
  const std::vector<float> y = attend(shape, s, {});
  for (int threads : {1, 2, 3}) {
    for (int64_t chunk : {1, 7, 64, 1 << 30}) {
      const Way way{.num_threads = threads, .chunk = chunk, .reversed_pages = threads != 1};
      EXPECT_TRUE(same_bits(y, attend(shape, s, way))) << threads << " threads, chunk " << chunk;
    }
  }
}

TEST(CpuAttention, BitsDoNotDependOnTheInstructionSet) {
  for (const Shape& shape : {Shape{}, Shape{.sliding_window = 300, .softcap = 20}}) {
    const Sequence s(shape, 600, 4);
    const std::vector<float> y = attend(shape, s, {.isa = Isa::kPortable});
    for (Isa isa : testable_isas())
      for (int64_t chunk : {1, 50}) EXPECT_TRUE(same_bits(y, attend(shape, s, {isa, 2, chunk})));
  }
}

TEST(CpuAttention, SlidingWindowsAndSoftcap) {
  for (int64_t window : {1, 2, 16, 255, 256, 257, 512, 700}) {
    const Shape shape{.sliding_window = window, .softcap = window % 2 ? 30.0f : 0.0f};
    const Sequence s(shape, 1100, 5);
    const std::vector<float> y = attend(shape, s, {});
    expect_near_exact(shape, s, y,
                      {0, window - 2 < 0 ? 0 : window - 2, window - 1, window, window + 1, 255, 256,
                       511, 512, 1099});
    for (int64_t chunk : {1, 7, 64}) {
      EXPECT_TRUE(same_bits(y, attend(shape, s, {.num_threads = 2, .chunk = chunk})))
          << "window " << window << ", chunk " << chunk;
    }
  }
}

TEST(CpuAttention, AWindowLongerThanTheContextChangesNothing) {
  const Shape open, wide{.sliding_window = 5000};
  const Sequence s(open, 600, 6);
  EXPECT_TRUE(same_bits(attend(open, s, {}), attend(wide, s, {.num_threads = 2, .chunk = 100})));
}

// Leaving out groups that a sliding window hides must equal folding them with p = 0. A window of W
// at position p sees what full attention sees of a sequence whose hidden keys score far below -87.
TEST(CpuAttention, HiddenGroupsEqualGroupsOfZeroWeight) {
  const Shape open{.num_heads = 1, .num_kv_heads = 1}, sliding{1, 1, 16, 300};
  Sequence s(open, 2600, 7);
  const int64_t last = s.length - 1;
  // The last query and every key get a first dim of their own; 2,000 * 2,000 * 0.25 apart.
  s.q[static_cast<size_t>(last * 16)] = 2000;
  for (int64_t j = 0; j < s.length; ++j)
    s.k[static_cast<size_t>(j * 16)] = j > last - 300 ? 2000 : -2000;
  const std::vector<float> a = attend(open, s, {}), b = attend(sliding, s, {});
  EXPECT_TRUE(same_bits(a.data() + last * 16, b.data() + last * 16, 16));
}

TEST(CpuAttention, NeighboursDoNotMatter) {
  const Shape shape;
  const Sequence s(shape, 530, 8);
  const std::vector<float> y = attend(shape, s, {});
  for (Isa isa : testable_isas()) {
    for (int64_t chunk : {1, 7, 200}) {
      const Way way{.isa = isa, .num_threads = 2, .chunk = chunk, .noisy_neighbours = true};
      EXPECT_TRUE(same_bits(y, attend(shape, s, way))) << isa_name(isa) << ", chunk " << chunk;
    }
  }
}

TEST(CpuAttention, ARowDoesNotSeeLaterRowsOfItsWindow) {
  const Shape shape{.num_heads = 3, .num_kv_heads = 1};
  const Sequence s(shape, 300, 9);
  const std::vector<float> y = attend(shape, s, {});
  for (int64_t poison : {1, 17, 255, 258, 299}) {
    const std::vector<float> got = attend(shape, s, {.poison_from = poison});
    EXPECT_TRUE(same_bits(y.data(), got.data(), poison * 48)) << poison;
    for (int64_t i = poison * 48; i < 300 * 48; ++i)  // and the poison does reach its own rows
      ASSERT_TRUE(std::isnan(got[static_cast<size_t>(i)])) << i;
  }
}

TEST(CpuKvCache, SizesAndRefusals) {
  const KvLayerShape layers[] = {{3, 64}, {1, 256}};
  EXPECT_EQ(kv_page_bytes(layers), size_t{256} * 2 * 2 * (3 * 64 + 256));
  Result<std::unique_ptr<KvCache>> cache = CpuKvCache::make(layers, 4);
  ASSERT_TRUE(cache.ok());
  EXPECT_EQ((*cache)->num_pages, 4);
  EXPECT_GE((*cache)->num_bytes, 4 * kv_page_bytes(layers));

  const KvLayerShape huge[] = {{1 << 20, 1 << 20}};
  for (int num_pages : {1'000'000, 2'000'000'000}) {
    Result<std::unique_ptr<KvCache>> refused = CpuKvCache::make(huge, num_pages);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(refused.error().message.find("bytes"), std::string::npos);
  }
}

}  // namespace
}  // namespace invar::cpu
