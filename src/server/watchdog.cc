#include "server/watchdog.h"

#include <algorithm>

namespace invar::server {

using namespace std::chrono_literals;

Watchdog::Watchdog(const Engine& engine, std::chrono::milliseconds timeout,
                   std::function<void()> on_stall)
    : engine_(engine), timeout_(timeout), on_stall_(std::move(on_stall)) {
  thread_ = std::thread([this] { run(); });
}

Watchdog::~Watchdog() {
  {
    const std::lock_guard lock(mutex_);
    ends_ = true;
  }
  ended_.notify_all();
  thread_.join();
}

void Watchdog::run() {
  const std::chrono::milliseconds tick =
      std::clamp<std::chrono::milliseconds>(timeout_ / 20, 1ms, 1s);
  std::chrono::milliseconds still = 0ms;
  int64_t operations_before = -1, steps_before = -1;
  std::unique_lock lock(mutex_);
  while (!ended_.wait_for(lock, tick, [this] { return ends_; })) {
    const EngineStats stats = engine_.stats();
    const bool moved = stats.num_operations != operations_before || stats.num_steps != steps_before;
    operations_before = stats.num_operations;
    steps_before = stats.num_steps;
    // One tick each time, however long it really was.
    still = moved || !stats.has_work ? 0ms : still + tick;
    if (still < timeout_) continue;
    lock.unlock();
    on_stall_();
    lock.lock();
    still = 0ms;
  }
}

}  // namespace invar::server
