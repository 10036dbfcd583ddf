// ThreadPool: every unit once, on any number of threads; nothing when idle.
#include "base/threads.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <ctime>
#include <thread>
#include <vector>

namespace invar {
namespace {

TEST(ThreadPool, RunsEveryUnitExactlyOnce) {
  for (int num_threads = 1; num_threads <= 16; ++num_threads) {
    ThreadPool pool(num_threads);
    EXPECT_EQ(pool.num_threads(), num_threads);
    for (int64_t num_units : {0, 1, 2, 3, 7, 8, 9, 15, 16, 17, 64, 1000, 4097}) {
      // Plain ints: a unit that two threads run is a race that the thread sanitizer sees.
      std::vector<int> runs(static_cast<size_t>(num_units), 0);
      std::atomic<bool> bad_range{false};
      pool.run(num_units, [&](int64_t begin, int64_t end, int thread_index) {
        if (begin >= end || thread_index < 0 || thread_index >= num_threads) bad_range = true;
        for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
      });
      EXPECT_FALSE(bad_range);
      for (int count : runs) ASSERT_EQ(count, 1) << num_threads << " threads, " << num_units;
    }
  }
}

TEST(ThreadPool, PhasesSeeWhatEarlierPhasesWrote) {
  ThreadPool pool(3);
  std::vector<int64_t> values(100, 1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> next(values.size());
    pool.run(static_cast<int64_t>(values.size()), [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) {
        const size_t at = static_cast<size_t>(i);
        next[at] = (values[at] + values[(at + 1) % values.size()]) / 2 + round;
      }
    });
    values = next;
  }
  std::vector<int64_t> expected(100, 1);
  for (int round = 0; round < 200; ++round) {
    std::vector<int64_t> next(expected.size());
    for (size_t i = 0; i < expected.size(); ++i)
      next[i] = (expected[i] + expected[(i + 1) % expected.size()]) / 2 + round;
    expected = next;
  }
  EXPECT_EQ(values, expected);
}

// A worker that comes late to a phase of few units must not take a piece of the next one, with
// many, before that has begun: units would run twice, and the count of those done would never be
// right. Few rounds meet it, so there are many, with more threads than cores.
TEST(ThreadPool, LateWorkersTakeNothingOfThePhaseThatIsBeingFilledIn) {
  constexpr int kThreads = 8;
  constexpr int64_t kManyUnits = 512;
  ThreadPool pool(kThreads);
  std::vector<std::atomic<int>> runs(kManyUnits);
  const auto body = [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i)
      runs[static_cast<size_t>(i)].fetch_add(1, std::memory_order_relaxed);
  };
  const auto start = std::chrono::steady_clock::now();
  for (int round = 0; round < 1'000'000; ++round) {
    const int64_t num_units = round % 2 == 0 ? kThreads + 1 : kManyUnits;
    for (auto& count : runs) count.store(0, std::memory_order_relaxed);
    pool.run(num_units, body);
    for (int64_t i = 0; i < num_units; ++i)
      ASSERT_EQ(runs[static_cast<size_t>(i)].load(), 1) << "unit " << i << ", round " << round;
    if (std::chrono::steady_clock::now() - start > std::chrono::seconds(3)) break;
  }
}

TEST(ThreadPool, WorksAfterItsWorkersWentToSleep) {
  ThreadPool pool(4);
  for (int round = 0; round < 5; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::atomic<int64_t> sum{0};
    pool.run(100, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) sum += i;
    });
    EXPECT_EQ(sum, 4950);
  }
}

TEST(ThreadPool, UsesNoCpuWhenIdle) {
  ThreadPool pool(4);
  pool.run(16, [](int64_t, int64_t, int) {});
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const auto cpu_seconds = [] {
    timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  };
  const double before = cpu_seconds();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_seconds() - before, 0.01);
}

TEST(ThreadPool, UnusedPoolsEnd) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(3);
}

TEST(DefaultNumThreads, IsBetweenOneAndTheCpusThere) {
  EXPECT_GE(default_num_threads(), 1);
  EXPECT_LE(default_num_threads(), static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace
}  // namespace invar
