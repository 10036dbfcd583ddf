// ThreadPool: runs the units of a phase on a fixed set of threads. Units write disjoint outputs, so
// who runs a unit can never matter to a result; the pool only decides about speed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

namespace invar {

// Threads worth using for arithmetic: physical cores that the affinity mask allows, at most the
// cgroup's CPU quota rounded down, at least 1.
int default_num_threads();

class ThreadPool {
 public:
  // The calling thread of run() is one of the `num_threads`. num_threads >= 1.
  explicit ThreadPool(int num_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int num_threads() const;

  // Calls body(begin, end, thread_index) over ranges that cover [0, num_units) exactly once, and
  // returns when all have ended. Mostly one contiguous range a thread (weights stream in order);
  // the tail goes in small pieces to whoever is free. One run() at a time, from one thread.
  void run(int64_t num_units, const std::function<void(int64_t, int64_t, int)>& body);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace invar
