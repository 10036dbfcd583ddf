#include "signals.h"

#include <pthread.h>
#include <unistd.h>

#include <thread>
#include <utility>

#include "exit_codes.h"

namespace invar::cli {

Signals& Signals::start(std::unique_ptr<server::KeyStore> keys) {
  static Signals* const signals = new Signals(std::move(keys));  // never destroyed
  return *signals;
}

Signals::Signals(std::unique_ptr<server::KeyStore> keys) : keys_(std::move(keys)) {
  sigemptyset(&set_);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set_, signal);
  ::pthread_sigmask(SIG_BLOCK, &set_, nullptr);
  std::thread([this] { watch(); }).detach();
}

void Signals::serving() {
  const std::lock_guard lock(mutex_);
  serving_ = true;
}

int Signals::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return signal_ != 0; });
  return signal_;
}

void Signals::watch() {
  for (;;) {
    int signal = 0;
    if (::sigwait(&set_, &signal) != 0) continue;
    if (signal == SIGHUP) {
      keys_->reload();
      continue;
    }
    const std::lock_guard lock(mutex_);
    if (!serving_) ::_exit(kExitOk);
    if (signal_ != 0) ::_exit(128 + signal);
    signal_ = signal;
    changed_.notify_all();
  }
}

}  // namespace invar::cli
