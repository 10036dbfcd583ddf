// ThreadPool: every unit once, on any number of threads, whatever cores there are; nothing when
// idle.
#include "base/threads.h"

#include <dirent.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/resource.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <thread>
#include <vector>

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

// CPU seconds of all threads of this process.
double cpu_seconds() {
  rusage usage;
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Moves every thread of this process, as taskset and a shrinking cpuset do.
void move_all_threads(const cpu_set_t& cpus) {
  DIR* tasks = opendir("/proc/self/task");
  ASSERT_NE(tasks, nullptr);
  while (const dirent* entry = readdir(tasks))
    if (const int thread = std::atoi(entry->d_name); thread > 0)
      sched_setaffinity(thread, sizeof cpus, &cpus);
  closedir(tasks);
}

// All threads on one of the allowed cores, for a scope.
class OnOneCore {
 public:
  OnOneCore() {
    sched_getaffinity(0, sizeof before_, &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &before_)) CPU_SET(cpu, &one);
    move_all_threads(one);
  }
  ~OnOneCore() { move_all_threads(before_); }
  OnOneCore(const OnOneCore&) = delete;
  OnOneCore& operator=(const OnOneCore&) = delete;

 private:
  cpu_set_t before_;
};

// Work of about `num_loops` nanoseconds that no compiler leaves out.
void work(int64_t num_loops) {
  for (int64_t i = 0; i < num_loops; ++i) asm volatile("" : : "r"(i) : "memory");
}

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
  for (int num_threads : {2, 4, 64}) {
    ThreadPool pool(num_threads);
    for (int i = 0; i < 50; ++i) pool.run(256, [](int64_t, int64_t, int) {});
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    const double before = cpu_seconds();
    std::this_thread::sleep_for(std::chrono::milliseconds(400));
    EXPECT_LT(cpu_seconds() - before, 0.001) << num_threads << " threads";  // 0.25 % of a core
  }
}

// More threads than any core count of a test machine: correct, and slow at most by the switching.
TEST(ThreadPool, SixtyFourThreadsOnFewCores) {
  ThreadPool pool(64);
  const auto start = Clock::now();
  for (int round = 0; round < 400; ++round) {
    const int64_t num_units = 1 + round * 7 % 200;
    std::vector<int> runs(static_cast<size_t>(num_units), 0);
    pool.run(num_units, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
      work(1000);
    });
    ASSERT_EQ(std::count(runs.begin(), runs.end(), 1), num_units) << "round " << round;
  }
  // 0.03 s on two cores; a phase that waits for a sleeper's time slice takes 100 times as long.
  EXPECT_LT(seconds_since(start), 20);
}

TEST(ThreadPool, CoresComeAndGoDuringAPhase) {
  ThreadPool pool(4);
  std::atomic<bool> stop{false};
  std::thread mover([&] {
    while (!stop) {
      const OnOneCore one;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  const auto start = Clock::now();
  int64_t phases = 0;
  for (; seconds_since(start) < 0.5; ++phases) {
    std::vector<int> runs(64, 0);
    pool.run(64, [&](int64_t begin, int64_t end, int) {
      for (int64_t i = begin; i < end; ++i) ++runs[static_cast<size_t>(i)];
      work(2000);
    });
    ASSERT_EQ(std::count(runs.begin(), runs.end(), 1), 64) << "phase " << phases;
  }
  stop = true;
  mover.join();
  EXPECT_GT(phases, 50);
}

// A core that somebody else takes: two threads share the one that is left, and must not stand in
// each other's way by spinning. Both pools stand on the same core, in turn; the least time of many
// counts, which foreign load does not touch.
TEST(ThreadPool, TwoThreadsOnOneCoreAreHardlySlowerThanOne) {
  ThreadPool single(1), pair(2);
  const OnOneCore one;
  constexpr int kPhases = 100, kRounds = 40;
  const auto time = [&](ThreadPool& pool, int64_t loops) {
    const auto start = Clock::now();
    for (int i = 0; i < kPhases; ++i)
      pool.run(64, [&](int64_t begin, int64_t end, int) { work((end - begin) * loops); });
    return seconds_since(start);
  };
  for (int64_t loops : {200, 1000}) {  // phases as short as a small model's, and longer ones
    double least_single = 1e9, least_pair = 1e9;
    for (int round = 0; round < kRounds; ++round) {
      least_single = std::min(least_single, time(single, loops));
      least_pair = std::min(least_pair, time(pair, loops));
    }
    EXPECT_LT(least_pair / least_single, 1.5) << loops << " loops a unit";
  }
}

TEST(ThreadPool, UnusedPoolsEnd) {
  for (int i = 0; i < 20; ++i) ThreadPool pool(3);
}

}  // namespace
}  // namespace invar
