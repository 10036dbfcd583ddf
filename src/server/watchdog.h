// Watchdog: notices an engine that stands still although there is something to do, from a thread of
// its own that takes no lock of the engine. A long step is no standstill: the model's operations
// count. Neither is a process that was stopped: only time that the watchdog itself ran counts.
#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "invar/invar.h"

namespace invar::server {

class Watchdog {
 public:
  // `on_stall` runs on the watchdog's thread once the engine has not moved for `timeout`; it may
  // end the process. `engine` outlives the watchdog.
  Watchdog(const Engine& engine, std::chrono::milliseconds timeout, std::function<void()> on_stall);
  ~Watchdog();
  Watchdog(const Watchdog&) = delete;
  Watchdog& operator=(const Watchdog&) = delete;

 private:
  void run();

  const Engine& engine_;
  const std::chrono::milliseconds timeout_;
  const std::function<void()> on_stall_;
  std::mutex mutex_;
  std::condition_variable ended_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace invar::server
