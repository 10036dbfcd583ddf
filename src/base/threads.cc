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

// A phase is a list of pieces: one large one a thread, then small ones. Pieces are taken from a
// counter, not handed to a certain thread: a worker that sleeps, or whose core somebody else uses,
// is missed only for as long as the others need to do its piece, and comes in later.
struct alignas(64) ThreadPool::State {
  using Body = std::function<void(int64_t, int64_t, int)>;

  int num_threads = 1;
  std::vector<std::thread> workers;

  // The phase. Atomics because a late worker may read them while run() fills in the next phase; it
  // then fails to take a piece (see take()) and uses nothing of what it read.
  std::atomic<const Body*> body{nullptr};
  std::atomic<int64_t> num_units{0};
  std::atomic<int64_t> num_large{0};  // units [0, num_large) are the large pieces, one a thread
  std::atomic<int64_t> small{1};      // units of a small piece
  std::atomic<bool> stop{false};

  // Number of the phase in the upper half, of the next free piece in the lower; kClosed there:
  // nothing to take, run() is filling in the next phase.
  static constexpr uint64_t kClosed = 0xffffffff;
  alignas(64) std::atomic<uint64_t> ticket{0};
  alignas(64) std::atomic<int64_t> num_done{0};  // units
  alignas(64) std::atomic<int> num_parked{0};
  std::mutex mutex;
  std::condition_variable wake;

  static uint64_t phase_of(uint64_t t) { return t >> 32; }
  static uint64_t piece_of(uint64_t t) { return t & 0xffffffff; }

  struct Piece {
    const Body* body;
    int64_t begin, end;
  };

  // Takes a piece of the current phase. False when none is left.
  //
  // Why what we read belongs to the phase whose piece we take: run() closes the ticket before it
  // fills in a phase. So if we read anything that it wrote (a release store, our load an acquire),
  // the closing happened before our compare-exchange, which then fails. Without it, a worker that
  // lags behind with the ticket of a phase whose pieces are all taken could read the larger
  // num_units of the next one, see a piece there, and run units twice.
  bool take(Piece& piece) {
    uint64_t t = ticket.load(std::memory_order_acquire);
    for (;;) {
      if (piece_of(t) == kClosed) return false;
      const int64_t index = static_cast<int64_t>(piece_of(t));
      const int64_t units = num_units.load(std::memory_order_acquire);
      const int64_t large = num_large.load(std::memory_order_acquire);
      piece.body = body.load(std::memory_order_acquire);
      if (index < num_threads) {
        piece.begin = large * index / num_threads;
        piece.end = large * (index + 1) / num_threads;
      } else {
        const int64_t size = small.load(std::memory_order_acquire);
        piece.begin = std::min(units, large + (index - num_threads) * size);
        piece.end = std::min(units, piece.begin + size);
        if (piece.begin >= piece.end) return false;
      }
      if (ticket.compare_exchange_weak(t, t + 1, std::memory_order_acq_rel,
                                       std::memory_order_acquire))
        return true;
    }
  }

  void work(int thread_index) {
    Piece piece;
    while (take(piece)) {
      if (piece.begin == piece.end) continue;  // fewer units than threads
      (*piece.body)(piece.begin, piece.end, thread_index);
      num_done.fetch_add(piece.end - piece.begin, std::memory_order_release);
    }
  }

  // Until start_phase() nobody takes a piece. All pieces are taken already, so nobody else changes
  // the ticket.
  void close_phase() {
    const uint64_t phase = phase_of(ticket.load(std::memory_order_relaxed));
    ticket.store(phase << 32 | kClosed, std::memory_order_relaxed);
  }

  // Opens the next phase. Sequentially consistent on both sides: either we see the parked worker
  // and wake it, or it sees the new phase before it sleeps.
  void start_phase() {
    const uint64_t next = phase_of(ticket.load(std::memory_order_relaxed)) + 1;
    ticket.store(next << 32, std::memory_order_seq_cst);
    if (num_parked.load(std::memory_order_seq_cst) > 0) {
      const std::lock_guard<std::mutex> lock(mutex);
      wake.notify_all();
    }
  }

  void worker_main(int thread_index) {
    uint64_t seen = 0;
    for (;;) {
      const auto started = [&] { return phase_of(ticket.load(std::memory_order_seq_cst)) != seen; };
      if (!spin_until(started, true)) {
        std::unique_lock<std::mutex> lock(mutex);
        num_parked.fetch_add(1, std::memory_order_seq_cst);
        wake.wait(lock, started);
        num_parked.fetch_sub(1, std::memory_order_seq_cst);
      }
      if (stop.load(std::memory_order_relaxed)) return;
      seen = phase_of(ticket.load(std::memory_order_acquire));
      work(thread_index);
    }
  }
};

ThreadPool::ThreadPool(int num_threads) : state_(std::make_unique<State>()) {
  INVAR_CHECK(num_threads >= 1, "num_threads %d", num_threads);
  state_->num_threads = num_threads;
  // Before the first phase all pieces are taken.
  state_->ticket = static_cast<uint64_t>(num_threads);
  for (int i = 1; i < num_threads; ++i)
    state_->workers.emplace_back([state = state_.get(), i] { state->worker_main(i); });
}

ThreadPool::~ThreadPool() {
  // A phase without units that every worker notices.
  state_->close_phase();
  state_->stop = true;
  state_->num_units = 0;
  state_->num_large = 0;
  state_->start_phase();
  for (std::thread& worker : state_->workers) worker.join();
}

int ThreadPool::num_threads() const { return state_->num_threads; }

void ThreadPool::run(int64_t num_units, const std::function<void(int64_t, int64_t, int)>& body) {
  if (num_units <= 0) return;
  State& s = *state_;
  if (s.num_threads == 1 || num_units == 1) return body(0, num_units, 0);

  // The last eighth goes in small pieces, so that all threads end together. With a unit or less a
  // thread there is nothing to balance.
  const int64_t tail = num_units <= s.num_threads ? 0 : (num_units + 7) / 8;
  s.close_phase();
  s.body.store(&body, std::memory_order_release);
  s.num_units.store(num_units, std::memory_order_release);
  s.num_large.store(num_units - tail, std::memory_order_release);
  s.small.store(std::max<int64_t>(1, tail / (4 * s.num_threads)), std::memory_order_release);
  s.num_done.store(0, std::memory_order_relaxed);
  s.start_phase();
  s.work(0);
  spin_until([&] { return s.num_done.load(std::memory_order_acquire) == num_units; }, false);
}

}  // namespace invar
