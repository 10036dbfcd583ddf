// Speed of the cpu backend's linear kernels on cold weights (copies in rotation, larger than the
// caches):
//
//   linear_bench FORMAT OUT IN [THREADS] [ISA]     one shape, 1 to 512 rows
//   linear_bench smollm2 [THREADS] [ISA]           every linear of SmolLM2-135M Q4_1, in order
//
// Prints GB/s of weights for few rows and GOPS for many, best of several windows, beside a
// bandwidth probe made in the same second (hosts drift; compare ratios).
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/linear.h"

namespace invar::cpu {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

struct Weight {
  std::unique_ptr<PackedWeight> packed;
  bool gated = false;
};

WeightFormat format_named(const std::string& name) {
  for (int f = 0; f < static_cast<int>(WeightFormat::kMlxAffine); ++f)
    if (name == format_name(static_cast<WeightFormat>(f))) return static_cast<WeightFormat>(f);
  fprintf(stderr, "unknown format %s\n", name.c_str());
  exit(2);
}

// A matrix of valid but arbitrary content; speed does not depend on it.
Weight make(ThreadPool& pool, WeightFormat format, int64_t out, int64_t in, bool gated = false,
            MatrixRole role = MatrixRole::kInner) {
  const BlockShape shape = block_shape(format);
  MatrixView view;
  view.name = "bench";
  view.format = format;
  view.num_rows = out;
  view.num_cols = in;
  view.row_bytes = in / shape.num_elements * shape.num_bytes;
  std::vector<uint8_t> data(static_cast<size_t>(out * view.row_bytes), 0x21);
  view.data = data.data();
  PackRequest request;
  request.parts = {view};
  request.role = role;
  if (gated) {
    request.parts.push_back(view);
    request.order = PartOrder::kGateAndUp;
  }
  static const LinearOptions options;  // one arena, as in a backend
  auto packed = pack_panels(request, pool, options);
  if (!packed.ok()) {
    fprintf(stderr, "%s\n", packed.error().message.c_str());
    exit(2);
  }
  return {*std::move(packed), gated};
}

struct Rows {
  Rows(int64_t num_rows, int64_t num_cols)
      : values(static_cast<size_t>(num_rows * num_cols)),
        tensor{values.data(), DType::kF32, num_rows, num_cols, num_cols} {
    std::mt19937 random;
    std::normal_distribution<float> normal;
    for (float& v : values) v = normal(random);
  }
  std::vector<float> values;
  Tensor tensor;
};

void run(ThreadPool& pool, Isa isa, const Weight& w, Tensor y, Tensor x) {
  if (w.gated) {
    gated_linear(pool, isa, y, x, *w.packed, Activation::kSilu);
  } else {
    linear(pool, isa, y, x, *w.packed, {}, Tensor{});
  }
}

// Bytes a second that the pool's threads read from `bytes`, best of a few passes.
double probe(ThreadPool& pool, const std::vector<uint64_t>& words) {
  double best = 0;
  const auto threads = static_cast<int64_t>(pool.num_threads());
  std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);
  for (int pass = 0; pass < 6; ++pass) {
    const auto start = Clock::now();
    pool.run(threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const size_t n = words.size() / static_cast<size_t>(threads);
        const uint64_t* p = words.data() + static_cast<size_t>(t) * n;
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (size_t i = 0; i + 32 <= n; i += 32) {  // one load a 64-byte line
          a += p[i];
          b += p[i + 8];
          c += p[i + 16];
          d += p[i + 24];
        }
        sums[static_cast<size_t>(t) * 8] = a + b + c + d;
      }
    });
    best = std::max(best, static_cast<double>(words.size() * 8) / seconds_since(start));
  }
  return best;
}

void bench_shape(ThreadPool& pool, Isa isa, WeightFormat format, int64_t out, int64_t in,
                 double bandwidth) {
  std::vector<Weight> copies;
  size_t bytes = 0;
  while (bytes < (200u << 20)) {
    copies.push_back(make(pool, format, out, in));
    bytes += copies.back().packed->num_bytes;
  }
  const double one = static_cast<double>(copies[0].packed->num_bytes);
  printf("%s %ldx%ld, %d threads, probe %.1f GB/s\n", format_name(format), long{out}, long{in},
         pool.num_threads(), bandwidth / 1e9);
  double first = 0;
  for (int64_t rows : {1, 2, 3, 4, 5, 8, 16, 64, 512}) {
    const Rows x(rows, in);
    Rows y(rows, out);
    double best = 1e9;
    size_t next = 0;
    const auto start = Clock::now();
    for (int window = 0; window < 5 || (window < 60 && seconds_since(start) < 0.25); ++window) {
      const auto window_start = Clock::now();
      int calls = 0;
      do {
        run(pool, isa, copies[next++ % copies.size()], y.tensor, x.tensor);
        ++calls;
      } while (seconds_since(window_start) < 0.003);
      best = std::min(best, seconds_since(window_start) / calls);
    }
    if (rows == 1) first = best;
    printf("  %4ld rows  %9.1f us  %5.1f GB/s  %6.1f GOPS  %.2fx\n", long{rows}, best * 1e6,
           one / best / 1e9, 2e-9 * static_cast<double>(rows * out * in) / best, best / first);
  }
}

void bench_smollm2(ThreadPool& pool, Isa isa, double bandwidth) {
  constexpr WeightFormat kFormat = WeightFormat::kQ4_1;
  std::vector<Weight> model;
  for (int layer = 0; layer < 30; ++layer) {
    model.push_back(make(pool, kFormat, 960, 576));
    model.push_back(make(pool, kFormat, 576, 576));
    model.push_back(make(pool, kFormat, 1536, 576, true));
    model.push_back(make(pool, kFormat, 576, 1536));
  }
  model.push_back(make(pool, WeightFormat::kQ8_0, 49152, 576, false, MatrixRole::kHead));
  double bytes = 0;
  for (const Weight& w : model) bytes += static_cast<double>(w.packed->num_bytes);
  printf("SmolLM2-135M Q4_1, all linears, %d threads, %.1f MB, probe %.1f GB/s\n",
         pool.num_threads(), bytes / 1e6, bandwidth / 1e9);
  for (int64_t rows : {1, 2, 4, 8, 64, 512}) {
    const Rows narrow(rows, 576), middle(rows, 1536);
    Rows y(rows, rows > 8 ? 1536 : 49152);
    // The best time of each call, summed: other processes disturb some call of every pass.
    std::vector<double> best_of(model.size(), 1e9);
    for (int pass = 0; pass < (rows > 64 ? 3 : rows > 8 ? 10 : 40); ++pass)
      for (size_t i = 0; i < model.size(); ++i) {
        if (rows > 8 && i + 1 == model.size()) continue;  // a prompt's logits: its last row only
        Tensor to = y.tensor;
        to.num_cols = model[i].packed->num_rows;
        const auto start = Clock::now();
        run(pool, isa, model[i], to,
            model[i].packed->num_cols == 576 ? narrow.tensor : middle.tensor);
        best_of[i] = std::min(best_of[i], seconds_since(start));
      }
    double best = 0, head = best_of.back();
    for (size_t i = 0; i + 1 < model.size(); ++i) best += best_of[i];
    if (rows > 8) head = 0;
    printf("  %4ld rows  layers %8.2f ms  head %6.2f ms  %8.1f rows/s\n", long{rows}, best * 1e3,
           head * 1e3, static_cast<double>(rows) / (best + head));
  }
}

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "smollm2";
  const int at = what == "smollm2" ? 2 : 4;
  ThreadPool pool(argc > at ? atoi(argv[at]) : default_num_threads());
  const auto choice = choose_isa(argc > at + 1 ? argv[at + 1] : "");
  if (!choice.ok() || (what != "smollm2" && argc < 4)) {
    fprintf(stderr, "usage: linear_bench FORMAT OUT IN | smollm2 [THREADS] [ISA]\n");
    return 2;
  }
  const std::vector<uint64_t> words((128u << 20) / 8, 1);
  const double bandwidth = probe(pool, words);
  printf("%s\n", isa_name(choice->isa));
  if (what == "smollm2") {
    bench_smollm2(pool, choice->isa, bandwidth);
  } else {
    bench_shape(pool, choice->isa, format_named(what), atol(argv[2]), atol(argv[3]), bandwidth);
  }
  return 0;
}

}  // namespace
}  // namespace invar::cpu

int main(int argc, char** argv) { return invar::cpu::main(argc, argv); }
