// Speed of the cpu backend's recurrent states, in turn with a plain sweep (every value read, times
// a factor, written) over as many other bytes, a layer each, by the same threads. Hosts drift:
// compare shares.
//
//   recurrent_bench [KEY=VALUE ...]
//   threads=2  isa=avx2  op=delta or ssd  heads=32  key_heads=16  keys=128  values=128
//   layers=40 (each with a state of its own: more than the L3 has)  rows=1,2,4,512  rounds=9
#include <time.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "backend/cpu/recurrent.h"
#include "backend/cpu/state_cache.h"

namespace invar::cpu {
namespace {

// One thread: its CPU time, which others on a busy host hardly change. Else the clock on the wall.
template <typename F>
double time_of(clockid_t clock, const F& body) {
  timespec start, end;
  clock_gettime(clock, &start);
  body();
  clock_gettime(clock, &end);
  return static_cast<double>(end.tv_sec - start.tv_sec) +
         1e-9 * static_cast<double>(end.tv_nsec - start.tv_nsec);
}

// The lower quartile: disturbed windows are many on a busy host, lucky ones few.
double quarter(std::vector<double> times) {
  std::sort(times.begin(), times.end());
  return times[times.size() / 4];
}

struct Settings {
  int threads = default_num_threads();
  std::string isa;
  bool ssd = false;
  int heads = 32, key_heads = 16, keys = 128, values = 128, layers = 40, rounds = 9;
  std::vector<int64_t> rows = {1, 2, 4, 512};
};

bool set(Settings& s, const std::string& word) {
  const size_t equals = word.find('=');
  if (equals == std::string::npos) return false;
  const std::string key = word.substr(0, equals), value = word.substr(equals + 1);
  const int number = atoi(value.c_str());
  if (key == "threads") return (s.threads = number) > 0;
  if (key == "isa") return (s.isa = value, true);
  if (key == "op") return (s.ssd = value == "ssd", value == "ssd" || value == "delta");
  if (key == "heads") return (s.heads = number) > 0;
  if (key == "key_heads") return (s.key_heads = number) > 0;
  if (key == "keys") return (s.keys = number) > 0;
  if (key == "values") return (s.values = number) > 0;
  if (key == "layers") return (s.layers = number) > 0;
  if (key == "rounds") return (s.rounds = number) > 0;
  if (key != "rows") return false;
  s.rows.clear();
  for (size_t at = 0; at < value.size();) {
    s.rows.push_back(atoi(value.c_str() + at));
    const size_t comma = value.find(',', at);
    at = comma == std::string::npos ? value.size() : comma + 1;
    if (s.rows.back() < 1) return false;
  }
  return !s.rows.empty();
}

class Bench {
 public:
  Bench(const Settings& settings, Isa isa)
      : s_(settings), pool_(s_.threads), ops_(make_recurrent_ops(pool_, isa)) {
    const std::vector<RecurrentLayerShape> layers(static_cast<size_t>(s_.layers),
                                                  {0, 0, s_.heads, s_.keys, s_.values});
    states_ = std::move(ops_->make_state_cache(layers, 1)).value();
    decay_.assign(static_cast<size_t>(s_.heads), -0.3f);
    zeros_.assign(static_cast<size_t>(s_.heads), 0.0f);
  }

  void run(int64_t num_rows) {
    const int64_t groups = s_.ssd ? std::max(1, s_.heads / 8) : s_.key_heads;
    Tensor key = random(num_rows, groups * s_.keys), query = random(num_rows, groups * s_.keys);
    Tensor value = random(num_rows, int64_t{s_.heads} * s_.values),
           y = random(num_rows, value.num_cols);
    Tensor a = random(num_rows, s_.heads), b = random(num_rows, s_.heads);
    const auto step = [&](int layer, int64_t start) {
      const Window windows[] = {{0, num_rows, start, {}, 0}};
      if (s_.ssd) {
        ops_->ssd(y, value, key, query, a, windows, *states_,
                  {layer, s_.heads, s_.values, static_cast<int>(groups), s_.keys, decay_, zeros_,
                   zeros_, 0, 0});
      } else {
        ops_->gated_delta(y, query, key, value, a, b, windows, *states_,
                          {layer, s_.key_heads, s_.heads, s_.keys, s_.values, HeadOrder::kGrouped,
                           decay_, zeros_});
      }
    };
    // A long window needs no cold states: its rows find them in L1.
    const int num_layers = num_rows >= 64 ? 1 : s_.layers;
    for (int layer = 0; layer < num_layers; ++layer) step(layer, 0);
    std::vector<double> op_times, sweep_times;
    for (int round = 0; round < s_.rounds; ++round) {
      for (int layer = 0; layer < num_layers; ++layer) {
        op_times.push_back(seconds_of([&] { step(layer, 1); }));
        sweep_times.push_back(seconds_of([&] { sweep((layer + num_layers / 2) % num_layers); }));
      }
    }
    const double head_rows = static_cast<double>(num_rows) * s_.heads;
    const double bytes = 2 * 4.0 * s_.keys * s_.values * s_.heads;
    const double op = quarter(op_times), swept = quarter(sweep_times);
    printf(
        "%-5s rows %4ld: %7.0f ns a head and row, %7.0f ns a head; sweep %6.0f ns a head, %5.1f "
        "GB/s (read and written); op / sweep %6.2f\n",
        s_.ssd ? "ssd" : "delta", long{num_rows}, op / head_rows * 1e9, op / s_.heads * 1e9,
        swept / s_.heads * 1e9, bytes / swept / 1e9, op / swept);
  }

 private:
  template <typename F>
  double seconds_of(const F& body) const {
    return time_of(s_.threads == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, body);
  }

  Tensor random(int64_t num_rows, int64_t num_cols) {
    std::vector<float>& memory = *memory_.emplace_back(
        std::make_unique<std::vector<float>>(static_cast<size_t>(num_rows * num_cols)));
    std::mt19937 engine(1);
    std::normal_distribution<float> normal;
    for (float& value : memory) value = normal(engine);
    Tensor t;
    t.data = memory.data();
    t.num_rows = num_rows;
    t.num_cols = t.row_stride = num_cols;
    return t;
  }

  void sweep(int layer) {
    auto& states = static_cast<CpuStateCache&>(*states_);
    pool_.run(s_.heads, [&](int64_t begin, int64_t end, int) {
      for (int64_t head = begin; head < end; ++head) {
        float* const state = states.head(0, layer, static_cast<int>(head));
        const size_t count = CpuStateCache::head_floats(states.layer_shape(layer));
        for (size_t i = 0; i < count; ++i) state[i] *= 0.999f;
      }
    });
  }

  Settings s_;
  ThreadPool pool_;
  std::unique_ptr<RecurrentOps> ops_;
  std::unique_ptr<StateCache> states_;
  std::vector<float> decay_, zeros_;
  std::vector<std::unique_ptr<std::vector<float>>> memory_;
};

}  // namespace
}  // namespace invar::cpu

int main(int argc, char** argv) {
  invar::cpu::Settings settings;
  for (int i = 1; i < argc; ++i) {
    if (!invar::cpu::set(settings, argv[i])) {
      fprintf(stderr, "recurrent_bench: '%s'? See the head of bench/ops/recurrent_bench.cc\n",
              argv[i]);
      return 2;
    }
  }
  const auto choice = invar::cpu::choose_isa(settings.isa);
  if (!choice.ok()) {
    fprintf(stderr, "recurrent_bench: %s\n", choice.error().message.c_str());
    return 2;
  }
  printf("%s, %d threads, %d heads of %d x %d, %d layers\n", invar::cpu::isa_name(choice->isa),
         settings.threads, settings.heads, settings.keys, settings.values, settings.layers);
  invar::cpu::Bench bench(settings, choice->isa);
  for (int64_t rows : settings.rows) bench.run(rows);
}
