// The pool: workers spin for a new phase, then sleep. Design and measurements:
// design/cpu-kernels.md section 6.
#include "base/threads.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/check.h"

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

// A step is a row of short phases with little between them: a worker that sleeps costs 20 to 50 us
// to wake, so it stays awake through a step. It gives the core away well before that when somebody
// else wants it (kYieldAfter), which is what a preempted partner needs.
constexpr auto kSpin = std::chrono::microseconds(50);
constexpr auto kYieldAfter = std::chrono::microseconds(20);

void pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Waits until `done()`; with a deadline returns false when it passes.
template <typename Done>
bool spin_until(const Done& done, bool with_deadline) {
  for (int i = 0; i < 64; ++i) {
    if (done()) return true;
    pause();
  }
  const Clock::time_point start = Clock::now();
  for (;;) {
    for (int i = 0; i < 32; ++i) {
      if (done()) return true;
      pause();
    }
    const auto waited = Clock::now() - start;
    if (with_deadline && waited > kSpin) return done();
    if (waited > kYieldAfter) std::this_thread::yield();
  }
}

}  // namespace

struct alignas(64) ThreadPool::State {
  using Body = std::function<void(int64_t, int64_t, int)>;

  int num_threads = 1;
  std::vector<std::thread> workers;

  // The phase. Written by the caller of run() before `phase` is raised, read by workers after.
  const Body* body = nullptr;
  int64_t num_units = 0;
  int64_t num_static = 0;  // units [0, num_static) are split evenly, the others go in pieces
  int64_t piece = 1;
  bool stop = false;

  alignas(64) std::atomic<uint32_t> phase{0};
  alignas(64) std::atomic<int64_t> next_piece{0};
  alignas(64) std::atomic<int> num_running{0};
  alignas(64) std::atomic<int> num_parked{0};
  std::mutex mutex;
  std::condition_variable wake;

  void work(int thread_index) {
    const int64_t begin = num_static * thread_index / num_threads;
    const int64_t end = num_static * (thread_index + 1) / num_threads;
    if (begin < end) (*body)(begin, end, thread_index);
    for (;;) {
      const int64_t first = next_piece.fetch_add(piece, std::memory_order_relaxed);
      if (first >= num_units) return;
      (*body)(first, std::min(first + piece, num_units), thread_index);
    }
  }

  // Raises `phase`. Sequentially consistent on both sides: either we see the parked worker and wake
  // it, or it sees the new phase before it sleeps.
  void start_phase() {
    phase.fetch_add(1, std::memory_order_seq_cst);
    if (num_parked.load(std::memory_order_seq_cst) > 0) {
      const std::lock_guard<std::mutex> lock(mutex);
      wake.notify_all();
    }
  }

  void worker_main(int thread_index) {
    uint32_t seen = 0;
    for (;;) {
      const auto started = [&] { return phase.load(std::memory_order_acquire) != seen; };
      if (!spin_until(started, true)) {
        std::unique_lock<std::mutex> lock(mutex);
        num_parked.fetch_add(1, std::memory_order_seq_cst);
        wake.wait(lock, [&] { return phase.load(std::memory_order_seq_cst) != seen; });
        num_parked.fetch_sub(1, std::memory_order_seq_cst);
      }
      // The caller starts no further phase before num_running is 0, so this is one step ahead.
      seen += 1;
      if (stop) return;
      work(thread_index);
      num_running.fetch_sub(1, std::memory_order_release);
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  INVAR_CHECK(num_threads >= 1, "num_threads %d", num_threads);
  state_->num_threads = num_threads;
  for (int i = 1; i < num_threads; ++i)
    state_->workers.emplace_back([state = state_.get(), i] { state->worker_main(i); });
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->start_phase();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::run(int64_t num_units, const std::function<void(int64_t, int64_t, int)>& body) {
  if (num_units <= 0) return;
  State& s = *state_;
  if (s.num_threads == 1 || num_units == 1) return body(0, num_units, 0);

  // The last eighth goes in pieces to whoever is free: that takes up a slower or preempted core.
  // With a unit or less a thread there is nothing to balance.
  const int64_t tail = num_units <= s.num_threads ? 0 : (num_units + 7) / 8;
  s.body = &body;
  s.num_units = num_units;
  s.num_static = num_units - tail;
  s.piece = std::max<int64_t>(1, tail / (4 * s.num_threads));
  s.next_piece.store(s.num_static, std::memory_order_relaxed);
  s.num_running.store(s.num_threads - 1, std::memory_order_relaxed);
  s.start_phase();
  s.work(0);
  spin_until([&] { return s.num_running.load(std::memory_order_acquire) == 0; }, false);
}

}  // namespace invar
