// Signals of a server: SIGTERM and SIGINT end it once it has drained, a second one at once; SIGHUP
// reads the key file again.
#pragma once

#include <signal.h>

#include <condition_variable>
#include <memory>
#include <mutex>

#include "server/http/auth.h"

namespace invar::cli {

// All are taken by one thread, which is never joined: it and what it uses live as long as the
// process.
class Signals {
 public:
  // Once, and before any other thread is started, which then leave the signals to ours.
  static Signals& start(std::unique_ptr<server::KeyStore> keys);
  server::KeyStore& keys() { return *keys_; }
  // From now on a signal waits for wait(); before, it ends the process: nothing is served yet.
  void serving();
  int wait();

 private:
  explicit Signals(std::unique_ptr<server::KeyStore> keys);
  void watch();

  const std::unique_ptr<server::KeyStore> keys_;
  sigset_t set_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool serving_ = false;
  int signal_ = 0;
};

}  // namespace invar::cli
