#include "cache/background_writer.h"

#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>

namespace invar {

void prepare_background_writer() {
  ::setpriority(PRIO_PROCESS, 0, 19);  // 0: this thread alone
  sigset_t signals;
  ::sigemptyset(&signals);
  ::sigaddset(&signals, SIGXFSZ);
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

}  // namespace invar
