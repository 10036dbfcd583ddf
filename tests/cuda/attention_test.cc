// Attention: numbers against softmax in double over the same bf16 inputs; bits against
// token-by-token computation, whatever the chunks, the neighbours, the page numbers, the kernel and
// its tiles. Unused cache slots hold NaN throughout.
#include "backend/cuda/attention.h"

#include <string>

#include "backend/cuda/row_ops.h"
#include "cuda/cuda_test_util.h"

namespace invar::cuda {
namespace {

struct Sequence {
  std::vector<Bf16> q, k, v;  // all positions
  int length = 0;
};

struct Case {
  AttentionShape shape;
  int q_width() const { return shape.num_heads * shape.head_dim; }
  int kv_width() const { return shape.num_kv_heads * shape.head_dim; }
};

Sequence random_sequence(Random& random, const Case& c, int length) {
  return {random_rows(random, int64_t{length} * c.q_width()),
          random_rows(random, int64_t{length} * c.kv_width()),
          random_rows(random, int64_t{length} * c.kv_width()), length};
}

// A cache for several sequences with shuffled pages; step() runs windows side by side.
class Runner {
 public:
  Runner(const Case& c, int pages_each, int sequences, uint64_t seed)
      : case_(c),
        pages_each_(pages_each),
        cache_(static_cast<size_t>(page_elements(c.shape.num_kv_heads, c.shape.head_dim)) *
               pages_each * sequences),
        pages_(static_cast<size_t>(pages_each) * sequences) {
    for (size_t i = 0; i < pages_.size(); ++i) pages_[i] = static_cast<int32_t>(i);
    Random random(seed);
    std::shuffle(pages_.begin(), pages_.end(), random.engine);
  }

  struct Part {
    int sequence, start, count;
  };
  // y rows of all parts, in order.
  std::vector<Bf16> step(const std::vector<Sequence>& sequences, const std::vector<Part>& parts,
                         const AttentionSchedule& schedule) {
    std::vector<Bf16> q, k, v;
    std::vector<DeviceWindow> windows;
    std::vector<int32_t> row_window;
    int most_rows = 0, most_groups = 0;
    for (const Part& part : parts) {
      const Sequence& s = sequences[static_cast<size_t>(part.sequence)];
      windows.push_back({static_cast<int32_t>(row_window.size()), part.count, part.start,
                         part.sequence * pages_each_});
      row_window.insert(row_window.end(), static_cast<size_t>(part.count),
                        static_cast<int32_t>(windows.size()) - 1);
      append(q, s.q, part, case_.q_width());
      append(k, s.k, part, case_.kv_width());
      append(v, s.v, part, case_.kv_width());
      most_rows = std::max(most_rows, part.count);
      most_groups = std::max(most_groups, (part.start + part.count - 1) / kGroupKeys + 1);
    }
    DeviceBuffer<Bf16> dq(q), dk(k), dv(v), y(q.size());
    DeviceBuffer<DeviceWindow> dw(windows);
    DeviceBuffer<int32_t> dp(pages_), dr(row_window);
    AttentionCall call;
    call.shape = case_.shape;
    call.q = dq.data();
    call.k = dk.data();
    call.v = dv.data();
    call.y = y.data();
    call.q_stride = call.y_stride = case_.q_width();
    call.k_stride = call.v_stride = case_.kv_width();
    call.windows = dw.data();
    call.num_windows = static_cast<int>(windows.size());
    call.pages = dp.data();
    call.row_window = dr.data();
    call.num_rows = static_cast<int>(row_window.size());
    call.max_window_rows = most_rows;
    call.max_groups = most_groups;
    call.cache = cache_.data();
    call.workspace_bytes = attention_workspace_bytes(case_.shape, call.num_rows, most_groups);
    DeviceBuffer<uint8_t> workspace(call.workspace_bytes);
    call.workspace = reinterpret_cast<float*>(workspace.data());
    attention(nullptr, call, schedule);
    CUDA_CHECK(cudaDeviceSynchronize());
    return y.get();
  }

 private:
  static void append(std::vector<Bf16>& to, const std::vector<Bf16>& from, const Part& part,
                     int width) {
    to.insert(to.end(), from.begin() + int64_t{part.start} * width,
              from.begin() + int64_t{part.start + part.count} * width);
  }
  Case case_;
  int pages_each_;
  DeviceBuffer<Bf16> cache_;
  std::vector<int32_t> pages_;
};

std::vector<double> attend_double(const Case& c, const Sequence& s, int position, int head) {
  const AttentionShape& a = c.shape;
  const int kv = head / (a.num_heads / a.num_kv_heads), dim = a.head_dim;
  const Bf16* q = s.q.data() + int64_t{position} * c.q_width() + head * dim;
  std::vector<double> score, out(static_cast<size_t>(dim), 0.0);
  const int begin = a.sliding_window > 0 ? std::max(0, position - a.sliding_window + 1) : 0;
  double top = -1e300;
  for (int key = begin; key <= position; ++key) {
    double dot = 0;
    for (int i = 0; i < dim; ++i)
      dot += double{bf16_value(q[i])} * bf16_value(s.k[int64_t{key} * c.kv_width() + kv * dim + i]);
    dot *= a.scale;
    if (a.softcap > 0) dot = a.softcap * std::tanh(dot / a.softcap);
    score.push_back(dot);
    top = std::max(top, dot);
  }
  double sum = 0;
  for (size_t j = 0; j < score.size(); ++j) {
    const double p = std::exp(score[j] - top);
    sum += p;
    for (int i = 0; i < dim; ++i)
      out[static_cast<size_t>(i)] +=
          p * bf16_value(s.v[int64_t{begin + static_cast<int>(j)} * c.kv_width() + kv * dim + i]);
  }
  for (double& v : out) v /= sum;
  return out;
}

AttentionShape shape(int heads, int kv_heads, int dim, int window = 0, float softcap = 0) {
  return {heads, kv_heads, dim, 1.f / std::sqrt(static_cast<float>(dim)), window, softcap};
}

const Case kCases[] = {{shape(9, 3, 64)},          {shape(14, 2, 64)},
                       {shape(28, 4, 128)},        {shape(4, 1, 256, 512)},
                       {shape(16, 2, 256, 0, 30)}, {shape(6, 6, 128, 100)}};

TEST(CudaAttention, AgreesWithDouble) {
  Random random(41);
  for (const Case& c : kCases) {
    constexpr int kLength = 700;
    const std::vector<Sequence> sequences = {random_sequence(random, c, kLength)};
    Runner runner(c, 3, 1, 1);
    const std::vector<Bf16> y =
        runner.step(sequences, {{0, 0, kLength}}, {.path = AttentionSchedule::Path::kLoop});
    double error = 0, total = 0;
    for (int position : {0, 1, 63, 64, 255, 256, 300, 511, 512, 699})
      for (int head = 0; head < c.shape.num_heads; ++head) {
        const std::vector<double> want = attend_double(c, sequences[0], position, head);
        for (int i = 0; i < c.shape.head_dim; ++i) {
          const double got = bf16_value(y[static_cast<size_t>(int64_t{position} * c.q_width() +
                                                              head * c.shape.head_dim + i)]);
          error += (got - want[static_cast<size_t>(i)]) * (got - want[static_cast<size_t>(i)]);
          total += want[static_cast<size_t>(i)] * want[static_cast<size_t>(i)];
        }
      }
    EXPECT_LT(std::sqrt(error / total), 4e-3)
        << c.shape.num_heads << " heads of " << c.shape.head_dim;
  }
}

TEST(CudaAttention, RowsKeepTheirBits) {
  using Path = AttentionSchedule::Path;
  Random random(42);
  for (const Case& c : kCases) {
    constexpr int kLength = 620, kFrom = 500;  // crosses 512, starts inside a group
    std::vector<Sequence> sequences;
    for (int i = 0; i < 3; ++i) sequences.push_back(random_sequence(random, c, kLength));
    // Token by token for the tail of sequence 0, split kernel.
    Runner alone(c, 3, 1, 2);
    std::vector<Bf16> want = alone.step(sequences, {{0, 0, kFrom}}, {.path = Path::kLoop});
    for (int p = kFrom; p < kLength; ++p) {
      const std::vector<Bf16> row =
          alone.step(sequences, {{0, p, 1}}, {.path = Path::kSplit, .row_tiles = 1});
      want.insert(want.end(), row.begin(), row.end());
    }
    for (int trial = 0; trial < 10; ++trial) {
      // Random chunks, beside two other sequences that move at their own pace.
      Runner runner(c, 3, 3, 100 + static_cast<uint64_t>(trial));
      std::vector<Bf16> got;
      int at[3] = {0, 0, 0};
      while (at[0] < kLength) {
        std::vector<Runner::Part> parts;
        int first_row = 0, rows_before = 0;
        for (int i = 0; i < 3; ++i) {
          const int sequence = (i + trial) % 3;
          const int most = random.below(3) == 0 ? 300 : 40;
          const int count = std::min(1 + random.below(most), kLength - at[sequence]);
          if (count <= 0) continue;
          if (sequence == 0) first_row = rows_before;
          rows_before += count;
          parts.push_back({sequence, at[sequence], count});
        }
        const AttentionSchedule s = {random.below(2) ? Path::kSplit : Path::kLoop,
                                     1 + random.below(2), 0, random.below(3)};
        const std::vector<Bf16> y = runner.step(sequences, parts, s);
        for (const Runner::Part& part : parts) {
          if (part.sequence == 0)
            got.insert(got.end(), y.begin() + int64_t{first_row} * c.q_width(),
                       y.begin() + int64_t{first_row + part.count} * c.q_width());
          at[part.sequence] += part.count;
        }
      }
      ASSERT_EQ(got.size(), want.size());
      ASSERT_EQ(count_different(got.data(), want.data(), static_cast<int64_t>(got.size())), 0)
          << c.shape.num_heads << " heads of " << c.shape.head_dim << " trial " << trial;
    }
  }
}

// q and k rotated as they are read: the bits of rope() and attention one after the other, in the
// output and in the pages.
TEST(CudaAttention, RotatesAsItReads) {
  Random random(43);
  constexpr int kStart = 510, kPages = 3;
  for (const auto& [c, freqs, rows] : {std::tuple<Case, int, int>{{shape(28, 4, 128)}, 64, 1},
                                       {{shape(28, 4, 128)}, 64, 5},
                                       {{shape(4, 1, 256, 512)}, 64, 2},
                                       {{shape(9, 3, 64)}, 32, 90}}) {
    const int dim = c.shape.head_dim, q_width = c.q_width(), kv_width = c.kv_width();
    const int stride = q_width + 2 * kv_width, heads = c.shape.num_heads + c.shape.num_kv_heads;
    std::vector<float> qkv(static_cast<size_t>(rows) * stride);
    for (float& v : qkv) v = static_cast<float>(random.normal());
    std::vector<double> inv_freq(static_cast<size_t>(freqs));
    for (int i = 0; i < freqs; ++i)
      inv_freq[static_cast<size_t>(i)] = std::pow(1e4, -double(i) / freqs);
    std::vector<int32_t> positions, row_window(static_cast<size_t>(rows), 0);
    for (int i = 0; i < rows; ++i) positions.push_back(kStart + i);
    const std::vector<Bf16> old =
        random_rows(random, page_elements(c.shape.num_kv_heads, dim) * kPages);
    const std::vector<DeviceWindow> windows = {{0, rows, kStart, 0}};
    DeviceBuffer<int32_t> dp(positions), dr(row_window), pages(std::vector<int32_t>{2, 0, 1});
    DeviceBuffer<double> df(inv_freq);
    DeviceBuffer<DeviceWindow> dw(windows);
    std::vector<Bf16> want_y, want_cache;
    for (const bool inside : {false, true}) {
      DeviceBuffer<float> dx(qkv);
      DeviceBuffer<float2> table(static_cast<size_t>(rows) * freqs);
      DeviceBuffer<Bf16> cache(old), y(static_cast<size_t>(rows) * q_width);
      AttentionCall call;
      if (inside) {
        rope_table(nullptr, dp.data(), df.data(), freqs, 1.f, rows, table.data());
        call.rotation = table.data();
        call.num_freqs = freqs;
      } else {
        rope(nullptr, OutputType::kF32, dx.data(), stride, dp.data(), df.data(), freqs, 1.f, rows,
             heads, dim);
      }
      call.shape = c.shape;
      call.input_type = OutputType::kF32;
      call.q = dx.data();
      call.k = dx.data() + q_width;
      call.v = dx.data() + q_width + kv_width;
      call.q_stride = call.k_stride = call.v_stride = stride;
      call.y = y.data();
      call.y_stride = q_width;
      call.windows = dw.data();
      call.num_windows = 1;
      call.pages = pages.data();
      call.row_window = dr.data();
      call.num_rows = call.max_window_rows = rows;
      call.max_groups = kPages;
      call.cache = cache.data();
      call.workspace_bytes = attention_workspace_bytes(c.shape, rows, kPages);
      DeviceBuffer<uint8_t> workspace(call.workspace_bytes);
      call.workspace = reinterpret_cast<float*>(workspace.data());
      attention(nullptr, call);
      CUDA_CHECK(cudaDeviceSynchronize());
      if (!inside) {
        want_y = y.get();
        want_cache = cache.get();
        continue;
      }
      EXPECT_EQ(count_different(y.get().data(), want_y.data(), static_cast<int64_t>(want_y.size())),
                0);
      EXPECT_EQ(count_different(cache.get().data(), want_cache.data(),
                                static_cast<int64_t>(want_cache.size())),
                0);
    }
  }
}

std::vector<float> random_floats(Random& random, int64_t count) {
  std::vector<float> v(static_cast<size_t>(count));
  for (float& x : v) x = static_cast<float>(random.normal());
  return v;
}

template <typename T>
void expect_same(const DeviceBuffer<T>& a, const DeviceBuffer<T>& b, const std::string& what) {
  const std::vector<T> x = a.get(), y = b.get();
  EXPECT_EQ(count_different(x.data(), y.data(), static_cast<int64_t>(x.size())), 0) << what;
}

// The kernel for one token a sequence at many depths: rotation, one group and several, windows,
// softcap; pages too.
TEST(CudaAttention, TokenKernelKeepsBits) {
  Random random(74);
  struct TokenCase {
    AttentionShape shape;
    int num_freqs;
  };
  const TokenCase cases[] = {{{28, 4, 128, 0.09f, 0, 0}, 64},  {{9, 3, 64, 0.125f, 0, 0}, 32},
                             {{4, 1, 256, 0.06f, 512, 0}, 64}, {{16, 2, 256, 0.06f, 0, 30}, 128},
                             {{6, 6, 128, 0.09f, 100, 0}, 64}, {{16, 1, 64, 0.125f, 0, 0}, 0}};
  constexpr int kPages = 12;
  for (const TokenCase& c : cases) {
    const AttentionShape& s = c.shape;
    const int q_width = s.num_heads * s.head_dim, kv_width = s.num_kv_heads * s.head_dim;
    const std::vector<Bf16> old =
        random_rows(random, page_elements(s.num_kv_heads, s.head_dim) * kPages);
    for (int start : {0, 1, 15, 16, 31, 63, 200, 254, 255, 256, 257, 700, 2047, 3000}) {
      const int groups = start / kGroupKeys + 1;
      const DeviceBuffer<float> qkv(random_floats(random, q_width + 2 * kv_width));
      DeviceBuffer<float2> table(static_cast<size_t>(std::max(c.num_freqs, 1)));
      std::vector<double> inv_freq(static_cast<size_t>(c.num_freqs), 0.01);
      const DeviceBuffer<double> df(inv_freq);
      const DeviceBuffer<int32_t> position(std::vector<int32_t>{start});
      if (c.num_freqs > 0)
        rope_table(nullptr, position.data(), df.data(), c.num_freqs, 1.f, 1, table.data());
      std::vector<int32_t> page_list(kPages);
      for (int i = 0; i < kPages; ++i) page_list[static_cast<size_t>(i)] = (i * 5 + 3) % kPages;
      const DeviceBuffer<int32_t> pages(page_list), row_window(std::vector<int32_t>{0});
      const DeviceBuffer<DeviceWindow> windows(std::vector<DeviceWindow>{{0, 1, start, 0}});
      // Slots at and beyond the new token hold NaN: the bytes were never written.
      std::vector<Bf16> cache_before = old;
      for (int page = 0; page < groups; ++page)
        for (int key = 0; key < kGroupKeys; ++key) {
          if (page * kGroupKeys + key < start) continue;
          for (int h = 0; h < s.num_kv_heads; ++h) {
            Bf16* keys =
                cache_before.data() +
                page_list[static_cast<size_t>(page)] * page_elements(s.num_kv_heads, s.head_dim) +
                int64_t{h} * 2 * kGroupKeys * s.head_dim;
            for (int d = 0; d < s.head_dim; ++d) {
              keys[key * s.head_dim + d] = 0xffff;
              keys[(kGroupKeys + 0) * s.head_dim + d * kGroupKeys + key] = 0xffff;
            }
          }
        }
      DeviceBuffer<Bf16> want_cache(cache_before), got_cache(cache_before);
      DeviceBuffer<Bf16> want(static_cast<size_t>(q_width)), got(static_cast<size_t>(q_width));
      AttentionCall call;
      call.shape = s;
      call.input_type = OutputType::kF32;
      call.rotation = c.num_freqs > 0 ? table.data() : nullptr;
      call.num_freqs = c.num_freqs;
      call.q = qkv.data();
      call.k = qkv.data() + q_width;
      call.v = qkv.data() + q_width + kv_width;
      call.q_stride = call.k_stride = call.v_stride = q_width + 2 * kv_width;
      call.y_stride = q_width;
      call.windows = windows.data();
      call.num_windows = call.num_rows = call.max_window_rows = 1;
      call.pages = pages.data();
      call.row_window = row_window.data();
      call.max_groups = groups;
      call.workspace_bytes = attention_workspace_bytes(s, 1, groups);
      DeviceBuffer<uint8_t> workspace(call.workspace_bytes);
      call.workspace = reinterpret_cast<float*>(workspace.data());
      call.cache = want_cache.data();
      call.y = want.data();
      attention(nullptr, call, {.row_tiles = 1, .token = 1});
      call.cache = got_cache.data();
      call.y = got.data();
      attention(nullptr, call, {.token = 2});
      CUDA_CHECK(cudaDeviceSynchronize());
      const std::string what = std::to_string(s.num_heads) + " heads of " +
                               std::to_string(s.head_dim) + " at " + std::to_string(start);
      expect_same(want, got, what);
      expect_same(want_cache, got_cache, what + ", pages");
    }
  }
}

// The kernel for long contexts: several sequences of different lengths, more groups reserved than
// there are, rotation, windows, softcap; pages too.
TEST(CudaAttention, StreamKernelKeepsBits) {
  Random random(75);
  struct StreamCase {
    AttentionShape shape;
    int num_freqs;
    std::vector<int> starts;
  };
  const StreamCase cases[] = {{{28, 4, 128, 0.09f, 0, 0}, 64, {3000}},
                              {{28, 4, 128, 0.09f, 0, 0}, 64, {256, 5000, 17, 255, 2047}},
                              {{28, 4, 128, 0.09f, 700, 0}, 64, {1500, 12000, 300}},
                              {{9, 3, 64, 0.125f, 0, 0}, 32, {511, 4000, 0, 900}},
                              {{16, 2, 256, 0.06f, 0, 30}, 128, {2600, 700}},
                              {{4, 1, 256, 0.06f, 512, 0}, 64, {3000, 100, 5000}},
                              {{16, 1, 64, 0.125f, 0, 0}, 0, std::vector<int>(70, 300)}};
  for (const StreamCase& c : cases) {
    const AttentionShape& s = c.shape;
    const int q_width = s.num_heads * s.head_dim, kv_width = s.num_kv_heads * s.head_dim;
    const int stride = q_width + 2 * kv_width, rows = static_cast<int>(c.starts.size());
    std::vector<DeviceWindow> window_list;
    std::vector<int32_t> row_list, position_list;
    int num_pages = 0, groups = 0;
    for (int i = 0; i < rows; ++i) {
      const int start = c.starts[static_cast<size_t>(i)];
      window_list.push_back({i, 1, start, num_pages});
      row_list.push_back(i);
      position_list.push_back(start);
      num_pages += start / kGroupKeys + 1;
      groups = std::max(groups, start / kGroupKeys + 1);
    }
    std::vector<int32_t> page_list(static_cast<size_t>(num_pages));
    for (int i = 0; i < num_pages; ++i) page_list[static_cast<size_t>(i)] = i;
    std::shuffle(page_list.begin(), page_list.end(), random.engine);
    const std::vector<Bf16> old =
        random_rows(random, page_elements(s.num_kv_heads, s.head_dim) * num_pages);
    const DeviceBuffer<float> qkv(random_floats(random, int64_t{rows} * stride));
    DeviceBuffer<float2> table(static_cast<size_t>(std::max(c.num_freqs, 1)) * rows);
    const DeviceBuffer<double> df(std::vector<double>(static_cast<size_t>(c.num_freqs), 0.01));
    const DeviceBuffer<int32_t> positions(position_list), pages(page_list), row_window(row_list);
    const DeviceBuffer<DeviceWindow> windows(window_list);
    if (c.num_freqs > 0)
      rope_table(nullptr, positions.data(), df.data(), c.num_freqs, 1.f, rows, table.data());
    DeviceBuffer<Bf16> want_cache(old), got_cache(old);
    DeviceBuffer<Bf16> want(static_cast<size_t>(rows) * q_width),
        got(static_cast<size_t>(rows) * q_width);
    AttentionCall call;
    call.shape = s;
    call.input_type = OutputType::kF32;
    call.rotation = c.num_freqs > 0 ? table.data() : nullptr;
    call.num_freqs = c.num_freqs;
    call.q = qkv.data();
    call.k = qkv.data() + q_width;
    call.v = qkv.data() + q_width + kv_width;
    call.q_stride = call.k_stride = call.v_stride = stride;
    call.y_stride = q_width;
    call.windows = windows.data();
    call.num_windows = call.num_rows = rows;
    call.max_window_rows = 1;
    call.pages = pages.data();
    call.row_window = row_window.data();
    for (const int more : {0, 5}) {
      call.max_groups = groups + more;
      call.workspace_bytes = attention_workspace_bytes(s, rows, call.max_groups);
      DeviceBuffer<uint8_t> workspace(call.workspace_bytes);
      call.workspace = reinterpret_cast<float*>(workspace.data());
      call.cache = want_cache.data();
      call.y = want.data();
      attention(nullptr, call, {.row_tiles = 1, .token = 1, .stream = 1});
      call.cache = got_cache.data();
      call.y = got.data();
      attention(nullptr, call, {.stream = 2});
      CUDA_CHECK(cudaDeviceSynchronize());
      const std::string what = std::to_string(s.num_heads) + " heads of " +
                               std::to_string(s.head_dim) + ", " + std::to_string(rows) + " rows";
      expect_same(want, got, what);
      expect_same(want_cache, got_cache, what + ", pages");
    }
  }
}

}  // namespace
}  // namespace invar::cuda
