// Speed of the cpu backend's linear kernels on cold weights (copies in rotation, larger than the
// caches), beside ceilings measured in the same second: a streaming read by the same threads, and
// the instruction set's own integer dot on registers. Hosts drift: compare shares, not figures.
//
//   linear_bench formats [KEY=VALUE ...]   format x rows x activation bits on one shape
//   linear_bench MODEL   [KEY=VALUE ...]   all linears of smollm2, gemma, qwen or qwen7b, in order
//   linear_bench experts [KEY=VALUE ...]   a layer of experts of shape=INNERxHIDDEN beside a dense
//                                          layer that reads as many bytes a row
//                                          (cold_mb=0: without)
//
//   threads=2  isa=avx2  csv=1  rows=1,4,8,64  bits=8,12  formats=q4_0,mlx4  shape=OUTxIN
//   experts=256  used=8 (of them by a row)
//   cpu=1 (with `experts` and threads=1: what others take of the core does not count)
//   layers=N (of a model; default all)  cold_mb=96 (of copies; more where the L3 is larger)
#include <strings.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/dot_peak.h"
#include "backend/cpu/linear.h"
#include "backend/cpu/linear_kernels.h"
#include "backend/cpu/moe.h"

namespace invar::cpu {
namespace {

using Clock = std::chrono::steady_clock;
using F = WeightFormat;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// Seconds of the calling thread while it ran, where asked for (`cpu=1`), else of the clock.
bool cpu_time = false;
double now() {
  timespec t;
  clock_gettime(cpu_time ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> words(1);
  for (char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else {
      words.back().push_back(c);
    }
  }
  return words;
}

[[noreturn]] void stop(const std::string& message) {
  fprintf(stderr, "linear_bench: %s\n", message.c_str());
  exit(2);
}

struct Settings {
  int threads = default_num_threads();
  Isa isa = choose_isa("").value().isa;
  bool csv = false;
  std::vector<int64_t> rows = {1, 2, 4, 8, 64};
  std::vector<int> bits = {8, 12};
  std::vector<std::string> formats;
  int64_t out = 2048, in = 2048;
  int experts = 256, used = 8;
  int layers = 1 << 30;
  double cold_mb = 96;
};

// ---- Weights
// -------------------------------------------------------------------------------------

struct Format {
  F format = F::kQ4_0;
  int mlx_bits = 0;
};

Format format_named(const std::string& name) {
  if (name.rfind("mlx", 0) == 0) return {F::kMlxAffine, atoi(name.c_str() + 3)};
  for (int f = 0; f < static_cast<int>(F::kMlxAffine); ++f)
    if (strcasecmp(name.c_str(), format_name(static_cast<F>(f))) == 0) return {static_cast<F>(f)};
  stop("unknown format " + name);
}

const char* const kAllFormats[] = {"q4_0", "q4_1", "q5_0", "q5_1",   "q8_0",   "q2_k",  "q3_k",
                                   "q4_k", "q5_k", "q6_k", "iq4_nl", "iq4_xs", "mxfp4", "mlx2",
                                   "mlx3", "mlx4", "mlx5", "mlx6",   "mlx8",   "bf16"};

struct Weight {
  std::unique_ptr<PackedWeight> packed;
  bool gated = false;

  void set_activation_bits(int bits) const {
    static_cast<PackedPanels&>(*packed).activation_bits = bits;
  }
  double bytes() const { return static_cast<double>(packed->num_bytes); }
};

// A matrix of valid but arbitrary content; speed does not depend on it.
Weight make(ThreadPool& pool, Format format, int64_t out, int64_t in, bool gated = false,
            MatrixRole role = MatrixRole::kInner, int num_experts = 1) {
  MatrixView view;
  view.name = "bench";
  view.format = format.format;
  view.num_rows = out;
  view.num_cols = in;
  std::vector<uint8_t> scales;
  if (format.format == F::kMlxAffine) {
    view.bits = format.mlx_bits;
    view.group_size = 64;
    view.scale_dtype = DType::kF16;
    view.row_bytes = in * format.mlx_bits / 8;
    scales.assign(static_cast<size_t>(out * in / 64 * 2), 0x21);
    view.scales = view.biases = scales.data();
  } else {
    const BlockShape shape = block_shape(format.format);
    view.row_bytes = in / shape.num_elements * shape.num_bytes;
  }
  const std::vector<uint8_t> data(static_cast<size_t>(out * view.row_bytes), 0x21);
  view.data = data.data();
  PackRequest request;
  request.parts.assign(static_cast<size_t>(num_experts) * (gated ? 2 : 1), view);
  request.num_experts = num_experts;
  request.role = role;
  if (gated) request.order = PartOrder::kGateAndUp;
  static const LinearOptions options;  // one arena, as in a backend
  auto packed = pack_panels(request, pool, options);
  if (!packed.ok()) stop(packed.error().message);
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

// ---- Ceilings
// ------------------------------------------------------------------------------------

// Bytes a second that the pool's threads read in order, best of short windows, as calls are timed.
// The memory is taken where weights live, in 2 MiB pages: 4 KiB pages cost a virtual machine most
// of its bandwidth.
double read_peak(ThreadPool& pool) {
  constexpr size_t kBytes = 128u << 20, kWindow = 16u << 20;
  static const PanelMemory memory = [] {
    PanelArena arena;
    PanelMemory bytes = arena.allocate(kBytes);
    if (bytes == nullptr) stop("no memory");
    std::memset(bytes.get(), 1, kBytes);
    return bytes;
  }();
  double best = 0;
  const auto threads = static_cast<int64_t>(pool.num_threads());
  std::vector<uint64_t> sums(static_cast<size_t>(threads) * 8);
  for (size_t window = 0; window < 6 * kBytes / kWindow; ++window) {
    const auto start = now();
    pool.run(threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        const size_t share = kWindow / static_cast<size_t>(threads) / 256 * 256;
        const uint8_t* p =
            memory.get() + window * kWindow % kBytes + static_cast<size_t>(t) * share;
        uint64_t sum[4] = {};
        for (size_t i = 0; i < share; i += 256)  // one load a line
          for (size_t j = 0; j < 4; ++j) {
            __builtin_prefetch(p + i + j * 64 + 4096);  // as the kernels do
            uint64_t word;
            std::memcpy(&word, p + i + j * 64, 8);
            sum[j] += word;
          }
        sums[static_cast<size_t>(t) * 8] = sum[0] + sum[1] + sum[2] + sum[3];
      }
    });
    best = std::max(best, static_cast<double>(kWindow) / (now() - start));
  }
  return best;
}

// Integer operations a second of all threads, best of a few windows.
double dot_peak(ThreadPool& pool, Isa isa, Dot dot) {
  constexpr int64_t kRounds = 100'000;
  const auto threads = static_cast<int64_t>(pool.num_threads());
  double best = 0;
  for (int window = 0; window < 12; ++window) {
    const auto start = Clock::now();
    pool.run(threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) run_dots(isa, dot, kRounds);
    });
    const double seconds = seconds_since(start);
    const auto done = static_cast<double>(run_dots(isa, dot, 1) * kRounds * threads);
    best = std::max(best, done / seconds);
  }
  return best;
}

// Which dot a format meets: AVX2 widens 8-bit codes.
Dot dot_of(const Settings& s, const Weight& w, int bits) {
  const auto& panels = static_cast<const PackedPanels&>(*w.packed);
  const PanelKind kind = panels.segments[0].format.kind;
  if (bits == 12) return Dot::kWords;
  return s.isa == Isa::kAvx2 && linear_kernels_avx2().reads_quads(kind, bits) ? Dot::kWords
                                                                              : Dot::kBytes;
}

// ---- One shape, many formats
// ---------------------------------------------------------------------

// Seconds of a call, best of short windows.
double best_call(ThreadPool& pool, Isa isa, const std::vector<Weight>& copies, Tensor y, Tensor x) {
  double best = 1e9;
  size_t next = 0;
  const auto start = Clock::now();
  for (int window = 0; window < 5 || (window < 60 && seconds_since(start) < 0.12); ++window) {
    const auto window_start = Clock::now();
    int calls = 0;
    do {
      run(pool, isa, copies[next++ % copies.size()], y, x);
      ++calls;
    } while (seconds_since(window_start) < 0.003);
    best = std::min(best, seconds_since(window_start) / calls);
  }
  return best;
}

void bench_formats(ThreadPool& pool, const Settings& s) {
  if (s.csv) {
    printf("isa,threads,out,in,format,bits,rows,us,gb_s,read_peak_gb_s,gops,dot_peak_gops\n");
  } else {
    printf(
        "%s, %d threads, %ldx%ld; GB/s of weights (share of the read peak), GOPS (share of the "
        "dot peak)\n",
        isa_name(s.isa), s.threads, long{s.out}, long{s.in});
  }
  for (const std::string& name : s.formats) {
    const Format format = format_named(name);
    std::vector<Weight> copies;
    double bytes = 0;
    while (bytes < s.cold_mb * 1e6) {
      copies.push_back(make(pool, format, s.out, s.in));
      bytes += copies.back().bytes();
    }
    for (int bits : s.bits) {
      if (format.format == F::kBF16 && bits != 8) continue;
      for (const Weight& w : copies) w.set_activation_bits(bits);
      const double read = read_peak(pool);
      const double dot = dot_peak(pool, s.isa, dot_of(s, copies[0], bits));
      if (!s.csv)
        printf("%-7s %2d  read %5.1f dot %6.1f |", name.c_str(), bits, read / 1e9, dot / 1e9);
      for (int64_t rows : s.rows) {
        const Rows x(rows, s.in);
        Rows y(rows, s.out);
        const double t = best_call(pool, s.isa, copies, y.tensor, x.tensor);
        const double rate = copies[0].bytes() / t;
        const double ops = 2 * static_cast<double>(rows * s.out * s.in) / t;
        if (s.csv) {
          printf("%s,%d,%ld,%ld,%s,%d,%ld,%.1f,%.2f,%.2f,%.1f,%.1f\n", isa_name(s.isa), s.threads,
                 long{s.out}, long{s.in}, name.c_str(), bits, long{rows}, t * 1e6, rate / 1e9,
                 read / 1e9, ops / 1e9, dot / 1e9);
        } else if (rows <= 2) {
          printf("  %ld: %5.1f GB/s %3.0f %%", long{rows}, rate / 1e9, 100 * rate / read);
        } else {
          printf("  %ld: %6.1f GOPS %3.0f %%", long{rows}, ops / 1e9,
                 dot > 0 ? 100 * ops / dot : 0);
        }
      }
      if (!s.csv) printf("\n");
      fflush(stdout);
    }
  }
}

// ---- Experts
// ---------------------------------------------------------------------------------------

// One row's logits that choose `used` experts of a shuffled order from `first` on; several rows
// choose at random.
void fill_logits(Tensor logits, const std::vector<int>& order, size_t first, int used,
                 std::mt19937& random) {
  std::normal_distribution<float> normal;
  for (int64_t t = 0; t < logits.num_rows; ++t)
    for (int64_t e = 0; e < logits.num_cols; ++e) logits.at(t, e) = normal(random);
  if (logits.num_rows > 1) return;
  for (int i = 0; i < used; ++i)
    logits.at(0, order[(first + static_cast<size_t>(i)) % order.size()]) += 100;
}

// Experts that some row chose.
int64_t num_read(Tensor logits, const MoeArgs& args) {
  std::vector<uint8_t> chosen(static_cast<size_t>(args.num_experts));
  std::vector<int32_t> experts(static_cast<size_t>(args.num_experts_per_tok));
  std::vector<float> weights(experts.size());
  for (int64_t t = 0; t < logits.num_rows; ++t) {
    route_row(logits.row(t), args, experts.data(), weights.data());
    for (int32_t e : experts) chosen[static_cast<size_t>(e)] = 1;
  }
  return std::count(chosen.begin(), chosen.end(), 1);
}

void bench_experts(ThreadPool& pool, const Settings& s) {
  MoeArgs args;
  args.num_experts = s.experts;
  args.num_experts_per_tok = s.used;
  std::mt19937 random(1);
  std::vector<int> order(static_cast<size_t>(s.experts));
  for (size_t e = 0; e < order.size(); ++e) order[e] = static_cast<int>(e);
  std::shuffle(order.begin(), order.end(), random);
  const std::vector<KernelCrossover> crossovers;
  CpuMoeOps ops(pool, s.isa, crossovers);
  printf("%s, %d threads, %d of %d experts of %ldx%ld; GB/s of weights, share of the read peak\n",
         isa_name(s.isa), s.threads, s.used, s.experts, long{s.out}, long{s.in});
  for (const std::string& name : s.formats) {
    const Format format = format_named(name);
    const Weight up = make(pool, format, s.out, s.in, true, MatrixRole::kInner, s.experts);
    const Weight down = make(pool, format, s.in, s.out, false, MatrixRole::kInner, s.experts);
    const double expert_bytes = (up.bytes() + down.bytes()) / s.experts;
    std::vector<std::pair<Weight, Weight>> dense;
    for (double bytes = 0; bytes < s.cold_mb * 1e6;) {
      dense.emplace_back(make(pool, format, s.out * s.used, s.in, true),
                         make(pool, format, s.in, s.out * s.used));
      bytes += dense.back().first.bytes() + dense.back().second.bytes();
    }
    for (int64_t rows : s.rows) {
      const Rows x(rows, s.in), logits(rows, s.experts);
      Rows y(rows, s.in), inner(rows, s.out * s.used);
      const double read = read_peak(pool);
      double best = 0, best_seconds = 1e9, best_dense = 1e9;
      size_t call = 0;
      const auto begin = Clock::now();
      for (int window = 0; window < 3 || (window < 24 && seconds_since(begin) < 4);
           ++window) {  // experts and dense in turns
        for (const auto start = Clock::now(); seconds_since(start) < 0.01; ++call) {
          fill_logits(logits.tensor, order, call * static_cast<size_t>(s.used), s.used, random);
          const double bytes = expert_bytes * static_cast<double>(num_read(logits.tensor, args));
          const double call_start = now();
          ops.moe(y.tensor, x.tensor, logits.tensor, *up.packed, *down.packed, args, Tensor{});
          const double seconds = now() - call_start;
          best = std::max(best, bytes / seconds);
          best_seconds = std::min(best_seconds, seconds);
        }
        for (const auto start = Clock::now(); !dense.empty() && seconds_since(start) < 0.01;
             ++call) {
          const auto& [dense_up, dense_down] = dense[call % dense.size()];
          const double call_start = now();
          run(pool, s.isa, dense_up, inner.tensor, x.tensor);
          run(pool, s.isa, dense_down, y.tensor, inner.tensor);
          best_dense = std::min(best_dense, now() - call_start);
        }
      }
      const double macs = 3 * static_cast<double>(rows * s.used * s.out * s.in);
      printf(
          "%-6s %4ld rows  experts %8.1f us %5.1f GB/s %3.0f %% %6.1f GOPS"
          "  dense %8.1f us %3.0f %% %6.1f GOPS\n",
          name.c_str(), long{rows}, best_seconds * 1e6, best / 1e9, 100 * best / read,
          2e-9 * macs / best_seconds, best_dense * 1e6,
          100 * expert_bytes * s.used / best_dense / read, 2e-9 * macs / best_dense);
      fflush(stdout);
    }
  }
}

// ---- All linears of a model
// ----------------------------------------------------------------------

struct LayerPart {
  const char* name;
  F format;
  int64_t out, in;
  bool gated = false;
};
struct ModelShape {
  int num_layers;
  std::vector<LayerPart> even, odd;  // parts of even and odd layers
  LayerPart head;
};

// As in the files of docs/benchmarking.md; qkv is one matrix there, of mixed formats: the larger
// part's format stands for all.
ModelShape model_named(const std::string& name) {
  if (name == "smollm2") {
    const std::vector<LayerPart> parts = {{"qkv", F::kQ4_1, 960, 576},
                                          {"o", F::kQ4_1, 576, 576},
                                          {"gate_up", F::kQ4_1, 1536, 576, true},
                                          {"down", F::kQ4_1, 576, 1536}};
    return {30, parts, parts, {"head", F::kQ8_0, 49152, 576}};
  }
  const auto with_down = [](std::vector<LayerPart> parts, F format, int64_t out, int64_t in) {
    parts.push_back({format == F::kQ4_K ? "down q4_k" : "down q6_k", format, out, in});
    return parts;
  };
  if (name == "gemma") {
    const std::vector<LayerPart> parts = {{"qkv", F::kQ5_0, 1536, 640},
                                          {"o", F::kQ4_K, 640, 1024},
                                          {"gate_up", F::kQ5_0, 2048, 640, true}};
    return {18,
            with_down(parts, F::kQ4_K, 640, 2048),
            with_down(parts, F::kQ6_K, 640, 2048),
            {"head", F::kQ8_0, 262144, 640}};
  }
  if (name == "qwen") {
    const std::vector<LayerPart> parts = {{"qkv", F::kQ5_0, 1152, 896},
                                          {"o", F::kQ5_0, 896, 896},
                                          {"gate_up", F::kQ5_0, 4864, 896, true}};
    return {24,
            with_down(parts, F::kQ4_K, 896, 4864),
            with_down(parts, F::kQ6_K, 896, 4864),
            {"head", F::kQ8_0, 151936, 896}};
  }
  if (name == "qwen7b") {
    const std::vector<LayerPart> parts = {{"qkv", F::kQ4_K, 4608, 3584},
                                          {"o", F::kQ4_K, 3584, 3584},
                                          {"gate_up", F::kQ4_K, 18944, 3584, true}};
    return {28,
            with_down(parts, F::kQ4_K, 3584, 18944),
            with_down(parts, F::kQ6_K, 3584, 18944),
            {"head", F::kQ6_K, 152064, 3584}};
  }
  stop("unknown model " + name);
}

// Where a model's time goes, a line a row count: the best time of each call, summed, since other
// processes disturb some call of every pass.
void bench_model(ThreadPool& pool, const Settings& s, const std::string& name) {
  const ModelShape shape = model_named(name);
  std::vector<Weight> model;
  std::vector<LayerPart> parts;
  for (int layer = 0; layer < std::min(shape.num_layers, s.layers); ++layer)
    for (const LayerPart& part : layer % 2 == 0 ? shape.even : shape.odd) parts.push_back(part);
  for (const LayerPart& p : parts) model.push_back(make(pool, {p.format}, p.out, p.in, p.gated));
  parts.push_back(shape.head);
  model.push_back(
      make(pool, {shape.head.format}, shape.head.out, shape.head.in, false, MatrixRole::kHead));
  const size_t head = parts.size() - 1;
  int64_t widest = 0, deepest = 0;
  for (const LayerPart& p : parts) {
    widest = std::max(widest, p.out);
    deepest = std::max(deepest, p.in);
  }
  if (s.csv)
    printf("model,isa,threads,bits,rows,part,calls,us,gb_s,gops,read_peak_gb_s,dot_peak_gops\n");
  for (int bits : s.bits) {
    for (size_t i = 0; i < head; ++i) model[i].set_activation_bits(bits);
    const double read = read_peak(pool);
    const double dots[] = {dot_peak(pool, s.isa, Dot::kBytes), dot_peak(pool, s.isa, Dot::kWords)};
    if (!s.csv)
      printf("%s, %s, %d threads, %d bits, read %.1f GB/s, dots %.0f / %.0f GOPS\n", name.c_str(),
             isa_name(s.isa), s.threads, bits, read / 1e9, dots[0] / 1e9, dots[1] / 1e9);
    for (int64_t rows : s.rows) {
      const bool prompt = rows > 16;  // of a prompt only the last row has logits
      const Rows x(rows, deepest);
      Rows y(rows, prompt ? 20000 : widest);
      std::vector<double> best(model.size(), 1e9);
      const auto start = Clock::now();
      for (int pass = 0; pass < 3 || (pass < 60 && seconds_since(start) < 1.5); ++pass)
        for (size_t i = 0; i < model.size(); ++i) {
          Tensor to = y.tensor, from = x.tensor;
          if (prompt && i == head) {
            static Rows last(1, 1 << 19);
            to = last.tensor;
            from.num_rows = 1;
          }
          to.num_cols = parts[i].out;
          from.num_cols = parts[i].in;
          const auto call = Clock::now();
          run(pool, s.isa, model[i], to, from);
          best[i] = std::min(best[i], seconds_since(call));
        }
      struct Sum {
        double seconds = 0, bytes = 0, ops = 0;
        int calls = 0;
        Dot dot = Dot::kBytes;
      };
      std::vector<std::pair<std::string, Sum>> sums;
      double total = 0;
      for (size_t i = 0; i < model.size(); ++i) {
        auto at = std::find_if(sums.begin(), sums.end(),
                               [&](const auto& e) { return e.first == parts[i].name; });
        if (at == sums.end()) at = sums.insert(sums.end(), {parts[i].name, {}});
        Sum& sum = at->second;
        const auto n = static_cast<double>(prompt && i == head ? 1 : rows);
        sum.seconds += best[i];
        sum.bytes += model[i].bytes();
        sum.ops +=
            2 * n * static_cast<double>(parts[i].out * parts[i].in) * (parts[i].gated ? 2 : 1);
        sum.calls += 1;
        sum.dot = dot_of(s, model[i], i == head ? 12 : bits);
        total += best[i];
      }
      if (!s.csv)
        printf(" %ld rows: %.2f ms, %.1f rows/s\n", long{rows}, total * 1e3,
               static_cast<double>(rows) / total);
      for (const auto& [part, sum] : sums) {
        const double rate = sum.bytes / sum.seconds, ops = sum.ops / sum.seconds;
        const double peak = dots[static_cast<int>(sum.dot)];
        if (s.csv) {
          printf("%s,%s,%d,%d,%ld,%s,%d,%.1f,%.2f,%.1f,%.2f,%.1f\n", name.c_str(), isa_name(s.isa),
                 s.threads, bits, long{rows}, part.c_str(), sum.calls, sum.seconds * 1e6,
                 rate / 1e9, ops / 1e9, read / 1e9, peak / 1e9);
        } else {
          printf("   %-10s %3d x  %9.1f us  %5.1f GB/s %3.0f %%  %6.1f GOPS %3.0f %%\n",
                 part.c_str(), sum.calls, sum.seconds * 1e6, rate / 1e9, 100 * rate / read,
                 ops / 1e9, peak > 0 ? 100 * ops / peak : 0);
        }
      }
      fflush(stdout);
    }
  }
}

Settings parse(int argc, char** argv) {
  Settings s;
  s.formats.assign(std::begin(kAllFormats), std::end(kAllFormats));
  for (int i = 2; i < argc; ++i) {
    const std::string arg = argv[i];
    const size_t equals = arg.find('=');
    if (equals == std::string::npos) stop("'" + arg + "' is not KEY=VALUE");
    const std::string key = arg.substr(0, equals), value = arg.substr(equals + 1);
    if (key == "threads") {
      s.threads = atoi(value.c_str());
    } else if (key == "isa") {
      const auto choice = choose_isa(value);
      if (!choice.ok()) stop(choice.error().message);
      s.isa = choice->isa;
    } else if (key == "csv") {
      s.csv = value != "0";
    } else if (key == "rows") {
      s.rows.clear();
      for (const std::string& word : split(value)) s.rows.push_back(atol(word.c_str()));
    } else if (key == "bits") {
      s.bits.clear();
      for (const std::string& word : split(value)) s.bits.push_back(atoi(word.c_str()));
    } else if (key == "formats") {
      s.formats = split(value);
    } else if (key == "shape") {
      if (sscanf(value.c_str(), "%ldx%ld", &s.out, &s.in) != 2) stop("shape is OUTxIN");
    } else if (key == "cold_mb") {
      s.cold_mb = atof(value.c_str());
    } else if (key == "cpu") {
      cpu_time = value != "0";
    } else if (key == "experts") {
      s.experts = atoi(value.c_str());
    } else if (key == "used") {
      s.used = atoi(value.c_str());
    } else if (key == "layers") {
      s.layers = atoi(value.c_str());
    } else {
      stop("unknown key " + key);
    }
  }
  return s;
}

int main(int argc, char** argv) {
  if (argc < 2) stop("usage: formats | experts | smollm2 | gemma | qwen | qwen7b [KEY=VALUE ...]");
  const Settings s = parse(argc, argv);
  ThreadPool pool(s.threads);
  if (std::strcmp(argv[1], "formats") == 0) {
    bench_formats(pool, s);
  } else if (std::strcmp(argv[1], "experts") == 0) {
    bench_experts(pool, s);
  } else {
    bench_model(pool, s, argv[1]);
  }
  return 0;
}

}  // namespace
}  // namespace invar::cpu

int main(int argc, char** argv) { return invar::cpu::main(argc, argv); }
