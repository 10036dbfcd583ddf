// Both probes run on the engine's number of threads; the dots themselves are dot_peak.h's.
#include "backend/cpu/probe.h"

#include <algorithm>
#include <chrono>
#include <vector>

#include "backend/cpu/dot_peak.h"
#include "backend/cpu/pack_memory.h"

namespace invar::cpu {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kProbeBytes = 256u << 20;
constexpr int kReadPasses = 5;
constexpr int kDotWindows = 12;
constexpr int64_t kDotRounds = 20000;  // a window: about a millisecond

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

double probe_read_bandwidth(ThreadPool& pool) {
  PanelArena arena;  // 2 MiB pages, as weights have
  const PanelMemory memory = arena.allocate(kProbeBytes);
  if (memory == nullptr) return 0;
  const int64_t num_threads = pool.num_threads();
  const size_t share = kProbeBytes / static_cast<size_t>(num_threads) / 256 * 256;
  std::vector<uint64_t> sums(static_cast<size_t>(num_threads) * 8);
  double best = 0;
  for (int pass = 0; pass <= kReadPasses; ++pass) {
    const auto start = Clock::now();
    pool.run(num_threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t) {
        uint8_t* bytes = memory.get() + static_cast<size_t>(t) * share;
        if (pass == 0) {  // pages that were never written are one page of zeros, from a cache
          std::fill_n(bytes, share, uint8_t{1});
          continue;
        }
        const auto* words = reinterpret_cast<const uint64_t*>(bytes);
        uint64_t a = 0, b = 0, c = 0, d = 0;
        for (size_t i = 0; i < share / 8; i += 32) {  // one load a 64-byte line
          a += words[i];
          b += words[i + 8];
          c += words[i + 16];
          d += words[i + 24];
        }
        sums[static_cast<size_t>(t) * 8] += a + b + c + d;
      }
    });
    if (pass == 0) continue;
    best = std::max(
        best, static_cast<double>(share) * static_cast<double>(num_threads) / seconds_since(start));
  }
  volatile uint64_t sink = 0;
  for (const uint64_t sum : sums) sink = sink + sum;
  return best;
}

double probe_byte_dots(ThreadPool& pool, Isa isa) {
  if (!isa_available(isa)) return 0;
  const int64_t num_threads = pool.num_threads();
  double best = 0;
  std::vector<int64_t> operations(static_cast<size_t>(num_threads) * 8);
  for (int window = 0; window < kDotWindows; ++window) {
    std::fill(operations.begin(), operations.end(), 0);
    const auto start = Clock::now();
    pool.run(num_threads, [&](int64_t begin, int64_t end, int) {
      for (int64_t t = begin; t < end; ++t)
        operations[static_cast<size_t>(t) * 8] = run_dots(isa, Dot::kBytes, kDotRounds);
    });
    const double seconds = seconds_since(start);
    double total = 0;
    for (const int64_t count : operations) total += static_cast<double>(count);
    best = std::max(best, total / seconds);
  }
  return best;
}

}  // namespace invar::cpu
