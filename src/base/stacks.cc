#include "base/stacks.h"

#include <dirent.h>
#include <execinfo.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

namespace invar {
namespace {

constexpr int kMaxFrames = 64;
constexpr std::chrono::milliseconds kAnswerTime{200};

std::atomic<int> output = -1;
std::atomic<bool> answered = false;

void write_text(int fd, const char* text) {
  [[maybe_unused]] const ssize_t written = ::write(fd, text, std::strlen(text));
}

void write_own_stack(int) {
  const int saved = errno;
  void* frames[kMaxFrames];
  ::backtrace_symbols_fd(frames, ::backtrace(frames, kMaxFrames), output);
  answered = true;
  errno = saved;
}

std::vector<pid_t> thread_ids() {
  std::vector<pid_t> ids;
  DIR* folder = ::opendir("/proc/self/task");
  if (folder == nullptr) return ids;
  while (const dirent* entry = ::readdir(folder))
    if (entry->d_name[0] != '.') ids.push_back(static_cast<pid_t>(std::atol(entry->d_name)));
  ::closedir(folder);
  return ids;
}

}  // namespace

void write_all_stacks(int fd) {
  // The first call of backtrace() loads a library, which a signal handler must not.
  void* frame = nullptr;
  ::backtrace(&frame, 1);
  output = fd;
  struct sigaction action{};
  action.sa_handler = write_own_stack;
  action.sa_flags = SA_RESTART;
  const int signal = SIGRTMIN + 3;
  if (::sigaction(signal, &action, nullptr) != 0) return;
  for (const pid_t thread : thread_ids()) {
    char line[64];
    std::snprintf(line, sizeof line, "thread %d\n", static_cast<int>(thread));
    write_text(fd, line);
    answered = false;
    if (::syscall(SYS_tgkill, ::getpid(), thread, signal) != 0) continue;
    const auto until = std::chrono::steady_clock::now() + kAnswerTime;
    while (!answered && std::chrono::steady_clock::now() < until)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    if (!answered) write_text(fd, "does not answer\n");
  }
}

}  // namespace invar
