// WorkerPool: threads for handlers, which wait for the engine. A thread is started when none is
// free and ends when it had nothing to do for a while; a stream holds one as long as it runs.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

namespace invar::server {

class WorkerPool {
 public:
  explicit WorkerPool(size_t max_threads);
  // Tasks that still run keep their threads; stop() waits for them.
  ~WorkerPool();
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  // False: no thread is free and none can be started.
  bool post(std::function<void()> task);

  // No more tasks; waits until all have ended. False: some still run after `timeout`, and may go on
  // using what they refer to.
  bool stop(std::chrono::milliseconds timeout);

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace invar::server
