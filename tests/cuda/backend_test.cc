// The CUDA backend behind backend.h: a small dense decoder against the reference backend, and the
// same decoder token by token, in chunks and beside other sequences: logits bit for bit.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/row_ops.h"
#include "cuda/cuda_test_util.h"

namespace invar {
Result<std::unique_ptr<Backend>> make_reference_backend(const BackendOptions& options);

namespace cuda {
namespace {

struct Dims {
  int hidden = 256, heads = 6, kv_heads = 2, head_dim = 64, mlp = 512, vocab = 500, layers = 2;
  int q() const { return heads * head_dim; }
  int kv() const { return kv_heads * head_dim; }
  int qkv() const { return q() + 2 * kv(); }
};

struct Weights {
  struct Layer {
    TestMatrix q, k, v, o, gate, up, down;
    std::vector<float> norm1, norm2, bias, head_norm;
  };
  TestMatrix table;
  std::vector<Layer> layers;
  std::vector<float> norm;
};

std::vector<float> near_one(Random& random, int n, double center) {
  std::vector<float> v(static_cast<size_t>(n));
  for (float& x : v) x = static_cast<float>(center + 0.1 * random.normal());
  return v;
}

Weights make_weights(const Dims& d) {
  Random random(51);
  Weights w;
  w.table = random_matrix(WeightFormat::kQ6_K, d.vocab, d.hidden, 52, 0.5);
  for (int i = 0; i < d.layers; ++i) {
    const uint64_t seed = 60 + 10 * static_cast<uint64_t>(i);
    Weights::Layer l;
    l.q = random_matrix(WeightFormat::kQ4_K, d.q(), d.hidden, seed, 0.08);
    l.k = random_matrix(WeightFormat::kQ4_K, d.kv(), d.hidden, seed + 1, 0.08);
    l.v = random_matrix(WeightFormat::kQ6_K, d.kv(), d.hidden, seed + 2, 0.08);
    l.o = random_matrix(WeightFormat::kQ8_0, d.hidden, d.q(), seed + 3, 0.05);
    l.gate = random_matrix(WeightFormat::kQ4_0, d.mlp, d.hidden, seed + 4, 0.08);
    l.up = random_matrix(WeightFormat::kQ4_0, d.mlp, d.hidden, seed + 5, 0.08);
    l.down = random_matrix(WeightFormat::kQ5_0, d.hidden, d.mlp, seed + 6, 0.05);
    l.norm1 = near_one(random, d.hidden, 1);
    l.norm2 = near_one(random, d.hidden, 1);
    l.bias = near_one(random, d.qkv(), 0);
    l.head_norm = near_one(random, d.head_dim, 1);
    w.layers.push_back(std::move(l));
  }
  w.norm = near_one(random, d.hidden, 1);
  return w;
}

// The decoder on one backend.
class Decoder {
 public:
  Decoder(Backend& backend, const Dims& dims, const Weights& weights, int num_pages)
      : backend_(backend), d_(dims), w_(weights) {
    table_ = pack({{w_.table.view}, PartOrder::kStacked, MatrixRole::kHead});
    for (const Weights::Layer& l : w_.layers) {
      packed_.push_back({pack({{l.q.view, l.k.view, l.v.view}}), pack({{l.o.view}}),
                         pack({{l.gate.view, l.up.view}, PartOrder::kGateAndUp}),
                         pack({{l.down.view}})});
    }
    const std::vector<KvLayerShape> shapes(static_cast<size_t>(d_.layers),
                                           {d_.kv_heads, d_.head_dim});
    auto cache = backend_.make_kv_cache(shapes, num_pages);
    EXPECT_TRUE(cache.ok());
    cache_ = *std::move(cache);
    for (int i = 0; i < d_.head_dim / 2; ++i)
      rope_.inv_freq.push_back(std::pow(10000.0, -2.0 * i / d_.head_dim));
  }

  std::vector<float> step(const std::vector<int32_t>& ids, const std::vector<Window>& windows) {
    arena_.reset();
    backend_.begin_step();
    backend_.want_best(want_best, d_.vocab, never);
    const auto pause = [&] {
      if (op_by_op) backend_.synchronize_op();
    };
    const auto rows = static_cast<int64_t>(ids.size());
    std::vector<int32_t> positions, all;
    for (const Window& window : windows)
      for (int64_t i = 0; i < window.num_rows; ++i)
        positions.push_back(static_cast<int32_t>(window.start + i));
    for (int64_t i = 0; i < rows; ++i) all.push_back(static_cast<int32_t>(i));
    Tensor x = arena_.rows(rows, d_.hidden);
    backend_.embed(x, ids, *table_, 1.5f);
    pause();
    for (int i = 0; i < d_.layers; ++i) {
      const Weights::Layer& l = w_.layers[static_cast<size_t>(i)];
      const Packed& p = packed_[static_cast<size_t>(i)];
      Tensor h = arena_.rows(rows, d_.hidden), qkv = arena_.rows(rows, d_.qkv());
      backend_.rms_norm(h, x, l.norm1, 1e-6f, {});
      pause();
      backend_.linear(qkv, h, *p.qkv, l.bias, {});
      pause();
      const Tensor q = qkv.cols(0, d_.q()), k = qkv.cols(d_.q(), d_.kv());
      backend_.head_rms_norm(q, d_.head_dim, l.head_norm, 1e-6f);
      pause();
      backend_.head_rms_norm(k, d_.head_dim, l.head_norm, 1e-6f);
      pause();
      backend_.rope(q, d_.head_dim, positions, rope_);
      pause();
      backend_.rope(k, d_.head_dim, positions, rope_);
      pause();
      Tensor a = arena_.rows(rows, d_.q());
      AttentionArgs args = {.layer = i,
                            .num_heads = d_.heads,
                            .num_kv_heads = d_.kv_heads,
                            .head_dim = d_.head_dim,
                            .scale = 0.125f};
      args.sliding_window = i == 1 ? 100 : 0;
      backend_.attention(a, q, k, qkv.cols(d_.q() + d_.kv(), d_.kv()), windows, *cache_, args);
      pause();
      if (i == 0) {
        backend_.linear(x, a, *p.o, {}, x);
        pause();
      } else {  // as gemma: a norm of the output
        Tensor o = arena_.rows(rows, d_.hidden), y = arena_.rows(rows, d_.hidden);
        backend_.linear(o, a, *p.o, {}, {});
        pause();
        backend_.rms_norm(y, o, l.norm2, 1e-6f, x);
        pause();
        x = y;
      }
      Tensor h2 = arena_.rows(rows, d_.hidden), g = arena_.rows(rows, d_.mlp);
      backend_.rms_norm(h2, x, l.norm2, 1e-6f, {});
      pause();
      backend_.gated_linear(g, h2, *p.gate_up, i == 0 ? Activation::kSilu : Activation::kGeluTanh);
      pause();
      backend_.linear(x, g, *p.down, {}, x);
      pause();
    }
    Tensor picked = arena_.rows(rows, d_.hidden), h = arena_.rows(rows, d_.hidden),
           logits = backend_.logits_memory(arena_, rows, d_.vocab);
    backend_.gather_rows(picked, x, all);
    pause();
    backend_.rms_norm(h, picked, w_.norm, 1e-6f, {});
    pause();
    backend_.lm_head(logits, h, *table_, 20);
    backend_.synchronize();
    return {logits.row(0), logits.row(0) + rows * d_.vocab};
  }

  bool op_by_op = false;
  std::vector<uint8_t> want_best;
  std::vector<int32_t> never;

 private:
  struct Packed {
    std::unique_ptr<PackedWeight> qkv, o, gate_up, down;
  };
  std::unique_ptr<PackedWeight> pack(const PackRequest& request) {
    auto packed = backend_.pack(request);
    EXPECT_TRUE(packed.ok());
    return *std::move(packed);
  }
  Backend& backend_;
  Dims d_;
  const Weights& w_;
  std::unique_ptr<PackedWeight> table_;
  std::vector<Packed> packed_;
  std::unique_ptr<KvCache> cache_;
  RopeSpec rope_;
  Arena arena_;
};

std::vector<int32_t> random_ids(uint64_t seed, int count, int vocab) {
  Random random(seed);
  std::vector<int32_t> ids(static_cast<size_t>(count));
  for (int32_t& id : ids) id = random.below(vocab);
  return ids;
}

TEST(CudaBackend, DecoderAgreesWithReference) {
  const Dims d;
  const Weights weights = make_weights(d);
  auto cuda_backend = make_cuda_backend({});
  auto reference = make_reference_backend({});
  ASSERT_TRUE(cuda_backend.ok() && reference.ok());
  const std::vector<int32_t> pages = {1, 0}, ids = random_ids(1, 300, d.vocab);
  const std::vector<Window> windows = {{0, 300, 0, pages}};
  const std::vector<float> got = Decoder(**cuda_backend, d, weights, 2).step(ids, windows);
  const std::vector<float> want = Decoder(**reference, d, weights, 2).step(ids, windows);
  double error = 0, total = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    error += std::pow(double{got[i]} - want[i], 2);
    total += std::pow(double{want[i]}, 2);
  }
  const double relative = std::sqrt(error / total);
  RecordProperty("relative_rms", std::to_string(relative));
  std::printf("relative rms of the logits: %.2e\n", relative);
  EXPECT_LT(relative, 2e-2);  // bf16 activations through two layers
  EXPECT_GT(total, 0);
}

TEST(CudaBackend, LogitsDoNotDependOnChunksOrNeighbours) {
  const Dims d;
  const Weights weights = make_weights(d);
  auto backend = make_cuda_backend({});
  ASSERT_TRUE(backend.ok());
  constexpr int kLength = 330;
  const std::vector<int32_t> ids[3] = {random_ids(1, kLength, d.vocab),
                                       random_ids(2, kLength, d.vocab),
                                       random_ids(3, kLength, d.vocab)};
  const std::vector<int32_t> pages[3] = {{5, 1}, {0, 3}, {2, 4}};
  Decoder decoder(**backend, d, weights, 6);
  const std::vector<float> want = decoder.step(ids[0], {{0, kLength, 0, pages[0]}});
  Random random(71);
  for (int trial = 0; trial < 4; ++trial) {
    Decoder other(**backend, d, weights, 6);
    std::vector<float> got;
    int at[3] = {0, 0, 0};
    while (at[0] < kLength) {
      std::vector<int32_t> step_ids;
      std::vector<Window> windows;
      size_t first = 0;
      int count0 = 0;
      for (int i = 0; i < 3; ++i) {
        const int s = trial == 0 ? 0 : (i + trial) % 3;
        if (trial == 0 && i > 0) break;
        const int count = std::min(trial == 0 ? 1 : 1 + random.below(90), kLength - at[s]);
        if (count <= 0) continue;
        if (s == 0) {
          first = step_ids.size();
          count0 = count;
        }
        windows.push_back({static_cast<int64_t>(step_ids.size()), count, at[s], pages[s]});
        step_ids.insert(step_ids.end(), ids[s].begin() + at[s], ids[s].begin() + at[s] + count);
        at[s] += count;
      }
      const std::vector<float> logits = other.step(step_ids, windows);
      got.insert(got.end(), logits.begin() + static_cast<int64_t>(first) * d.vocab,
                 logits.begin() + static_cast<int64_t>(first + count0) * d.vocab);
    }
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(count_different(got.data(), want.data(), static_cast<int64_t>(got.size())), 0)
        << "trial " << trial;
  }
}

// Three sequences that come and go: logits of every step, by sequence.
std::vector<float> run_streams(Backend& backend, const Dims& d, const Weights& weights,
                               int num_sequences, bool op_by_op) {
  constexpr int kLength = 40;
  Decoder decoder(backend, d, weights, num_sequences);
  decoder.op_by_op = op_by_op;
  std::vector<std::vector<int32_t>> ids, pages;
  std::vector<std::vector<float>> logits(static_cast<size_t>(num_sequences));
  for (int i = 0; i < num_sequences; ++i) {
    ids.push_back(random_ids(100 + static_cast<uint64_t>(i), kLength, d.vocab));
    pages.push_back({num_sequences - 1 - i});
  }
  std::vector<int> at(static_cast<size_t>(num_sequences), 0);
  for (bool more = true; more;) {
    more = false;
    std::vector<int32_t> step_ids;
    std::vector<Window> windows;
    std::vector<int> who;
    for (int i = 0; i < num_sequences; ++i) {
      const auto s = static_cast<size_t>(i);
      if (at[s] == kLength) continue;
      more = true;
      const int count = at[s] == 0 ? 5 + i : 1;  // a prompt, then token by token
      windows.push_back({static_cast<int64_t>(step_ids.size()), count, at[s], pages[s]});
      step_ids.insert(step_ids.end(), ids[s].begin() + at[s], ids[s].begin() + at[s] + count);
      at[s] += count;
      who.push_back(i);
    }
    if (!more) break;
    const std::vector<float> got = decoder.step(step_ids, windows);
    for (size_t w = 0; w < windows.size(); ++w) {
      const auto first = got.begin() + windows[w].first_row * d.vocab;
      auto& mine = logits[static_cast<size_t>(who[w])];
      mine.insert(mine.end(), first, first + windows[w].num_rows * d.vocab);
    }
  }
  std::vector<float> all;
  for (const auto& mine : logits) all.insert(all.end(), mine.begin(), mine.end());
  return all;
}

TEST(CudaBackend, SwitchesKeepBits) {
  const Dims d;
  const Weights weights = make_weights(d);
  for (const int num_sequences : {1, 8}) {
    std::vector<float> want;
    for (const char* switches :
         {"", "no-graph", "no-graph,no-dependent-launch", "no-norm-inside", "no-rope-inside",
          "no-buffer-reuse", "no-late-trigger", "no-stream-attention", "no-token-attention",
          "no-norm-inside,no-rope-inside,no-token-attention,no-stream-attention,no-graph"}) {
      BackendOptions options;
      options.switches = switches;
      auto backend = make_cuda_backend(options);
      ASSERT_TRUE(backend.ok());
      const std::vector<float> got = run_streams(**backend, d, weights, num_sequences, false);
      const CudaStepCounts counts = cuda_step_counts(**backend);
      const bool graph = std::string(switches).find("no-graph") == std::string::npos;
      EXPECT_EQ(counts.graph_steps > 25, graph) << switches << ": " << counts.graph_steps;
      EXPECT_LE(counts.captures, 8) << switches;
      if (want.empty()) want = got;
      ASSERT_EQ(got.size(), want.size());
      EXPECT_EQ(count_different(got.data(), want.data(), static_cast<int64_t>(got.size())), 0)
          << num_sequences << " sequences, switches '" << switches << "'";
    }
    auto backend = make_cuda_backend({});
    const std::vector<float> got = run_streams(**backend, d, weights, num_sequences, true);
    ASSERT_EQ(got.size(), want.size());
    EXPECT_EQ(count_different(got.data(), want.data(), static_cast<int64_t>(got.size())), 0)
        << num_sequences << " sequences, op by op";
  }
}

TEST(CudaBackend, StreamsEqualSolo) {
  const Dims d;
  const Weights weights = make_weights(d);
  auto backend = make_cuda_backend({});
  ASSERT_TRUE(backend.ok());
  const std::vector<float> solo = run_streams(**backend, d, weights, 1, false);
  for (const int num_sequences : {2, 8}) {
    const std::vector<float> all = run_streams(**backend, d, weights, num_sequences, false);
    ASSERT_EQ(all.size(), solo.size() * static_cast<size_t>(num_sequences));
    EXPECT_EQ(count_different(all.data(), solo.data(), static_cast<int64_t>(solo.size())), 0)
        << num_sequences;
  }
}

TEST(CudaBackend, FindsBestIds) {
  const Dims d;
  const Weights weights = make_weights(d);
  auto backend = make_cuda_backend({});
  ASSERT_TRUE(backend.ok());
  const std::vector<int32_t> ids = random_ids(7, 3, d.vocab), pages = {0};
  const std::vector<Window> windows = {{0, 3, 0, pages}};
  Decoder plain(**backend, d, weights, 1), best(**backend, d, weights, 1);
  const std::vector<float> logits = plain.step(ids, windows);
  const auto best_of = [&](int row) {
    const auto first = logits.begin() + row * d.vocab;
    return static_cast<int32_t>(std::max_element(first, first + d.vocab) - first);
  };
  best.want_best = {1, 0, 1};
  for (const bool op_by_op : {false, true, false, false}) {
    best.op_by_op = op_by_op;
    const std::vector<float> got = best.step(ids, windows);
    const std::span<const int32_t> found = (*backend)->best_ids();
    ASSERT_EQ(found.size(), 3u);
    EXPECT_EQ(found[0], best_of(0));
    EXPECT_EQ(found[1], -1);
    EXPECT_EQ(found[2], best_of(2));
    EXPECT_EQ(count_different(got.data() + d.vocab, logits.data() + d.vocab, d.vocab), 0);
  }
  best.never = {best_of(0)};
  best.step(ids, windows);
  EXPECT_NE((*backend)->best_ids()[0], best_of(0));
}

TEST(CudaBackend, NamesUnknownSwitch) {
  BackendOptions options;
  options.switches = "no-graph,no-grph";
  const auto backend = make_cuda_backend(options);
  ASSERT_FALSE(backend.ok());
  EXPECT_NE(backend.error().message.find("'no-grph'"), std::string::npos);
  EXPECT_NE(backend.error().message.find("graph, dependent-launch"), std::string::npos);
}

TEST(CudaBackendDeathTest, FaultEndsWithItsCode) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_EXIT(
      {
        cudaStream_t stream;
        CUDA_CHECK(cudaStreamCreate(&stream));
        note_cuda_work("rms_norm", 3, 7);
        rms_norm(stream, reinterpret_cast<const float*>(uintptr_t{4096}), 64, nullptr, 1e-6f, 3, 64,
                 nullptr, 64);
        CUDA_CHECK(cudaStreamSynchronize(stream));
      },
      ::testing::ExitedWithCode(72), "cuda_fault error=cudaErrorIllegalAddress.*work=.rms_norm.");
}

TEST(CudaBackend, SaysWhatItCannotDo) {
  auto backend = make_cuda_backend({});
  ASSERT_TRUE(backend.ok());
  const std::vector<KvLayerShape> odd = {{2, 80}};
  EXPECT_FALSE((*backend)->make_kv_cache(odd, 1).ok());
  const std::vector<KvLayerShape> large = {{8, 128}};
  const auto refused = (*backend)->make_kv_cache(large, 1 << 20);  // a terabyte
  EXPECT_FALSE(refused.ok());
  const std::vector<KvLayerShape> fine = {{2, 64}};
  EXPECT_TRUE((*backend)->make_kv_cache(fine, 1).ok());
}

}  // namespace
}  // namespace cuda
}  // namespace invar
