#include "server/http/worker_pool.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

namespace invar::server {
namespace {

constexpr std::chrono::seconds kIdleTime{10};

}  // namespace

struct WorkerPool::State {
  explicit State(size_t max) : max_threads(max) {}

  const size_t max_threads;
  std::mutex mutex;
  std::condition_variable work, ended;
  std::deque<std::function<void()>> tasks;
  size_t num_threads = 0, num_idle = 0;
  bool stopping = false;

  void run() {
    std::unique_lock lock(mutex);
    for (;;) {
      ++num_idle;
      work.wait_for(lock, kIdleTime, [&] { return !tasks.empty() || stopping; });
      --num_idle;
      if (tasks.empty()) break;
      std::function<void()> task = std::move(tasks.front());
      tasks.pop_front();
      lock.unlock();
      task();
      task = nullptr;  // what it holds is dropped outside the lock
      lock.lock();
    }
    --num_threads;
    ended.notify_all();
  }
};

WorkerPool::WorkerPool(size_t max_threads) : state_(std::make_shared<State>(max_threads)) {}

WorkerPool::~WorkerPool() { stop(std::chrono::milliseconds(0)); }

bool WorkerPool::post(std::function<void()> task) {
  const std::lock_guard lock(state_->mutex);
  if (state_->stopping) return false;
  // A waiting thread for each waiting task, else a new one.
  if (state_->num_idle <= state_->tasks.size()) {
    if (state_->num_threads == state_->max_threads) return false;
    try {
      std::thread([state = state_] { state->run(); }).detach();
    } catch (const std::system_error&) {
      return false;
    }
    ++state_->num_threads;
  }
  state_->tasks.push_back(std::move(task));
  state_->work.notify_one();
  return true;
}

bool WorkerPool::stop(std::chrono::milliseconds timeout) {
  std::unique_lock lock(state_->mutex);
  state_->stopping = true;
  state_->work.notify_all();
  return state_->ended.wait_for(lock, timeout, [&] { return state_->num_threads == 0; });
}

}  // namespace invar::server
