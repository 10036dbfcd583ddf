// Signals of a server: SIGTERM and SIGINT end it once it has drained, a second one at once; SIGHUP
// reads the key file again.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <mutex>

#include "server/http/auth.h"

namespace invar::cli {

// All are taken by one thread. Lives as long as the process: that thread is never joined.
class Signals {
 public:
  // Before any other thread is started, which then leave the signals to ours.
  explicit Signals(server::KeyStore& keys);
  // From now on a signal waits for wait(); before, it ends the process: nothing is served yet.
  void serving();
  int wait();

 private:
  void watch(server::KeyStore& keys);

  sigset_t set_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool serving_ = false;
  int signal_ = 0;
};

}  // namespace invar::cli
