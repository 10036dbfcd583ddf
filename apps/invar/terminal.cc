#include "terminal.h"

#include <pthread.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>

#include "base/log.h"
#include "exit_codes.h"

namespace invar::cli {
namespace {

// False: the reader went away or the device refused; errno says which.
bool write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return false;
    text.remove_prefix(static_cast<size_t>(count));
  }
  return true;
}

struct InterruptState {
  std::mutex mutex;
  std::function<void()> stop;
  bool stopped = false;
  std::string last_words;
  termios found{};
  bool has_terminal = false;
};

InterruptState& interrupt_state() {
  // Never destroyed: the signal thread outlives static destructors.
  static auto* state = new InterruptState;
  return *state;
}

[[noreturn]] void end_process(InterruptState& state, int signal) {
  if (state.has_terminal) ::tcsetattr(STDIN_FILENO, TCSANOW, &state.found);
  if (stderr_is_terminal()) print_error("\n");
  if (!state.last_words.empty()) print_error(state.last_words);
  ::_exit(128 + signal);
}

void watch_signals(sigset_t signals) {
  InterruptState& state = interrupt_state();
  for (;;) {
    int signal = 0;
    if (::sigwait(&signals, &signal) != 0) continue;
    const std::lock_guard lock(state.mutex);
    if (signal != SIGINT || !state.stop || state.stopped) end_process(state, signal);
    state.stopped = true;
    state.stop();
  }
}

}  // namespace

void print(std::string_view text) {
  if (write_all(STDOUT_FILENO, text)) return;
  if (errno == EPIPE) ::_exit(kExitClosedPipe);
  print_error(format("invar: cannot write to standard output: %s\n", std::strerror(errno)));
  ::_exit(kExitFailed);
}

void printf(const char* fmt, ...) {
  va_list args;
  va_start(args, fmt);
  va_list again;
  va_copy(again, args);
  const int size = std::vsnprintf(nullptr, 0, fmt, args);
  va_end(args);
  std::string text(static_cast<size_t>(size > 0 ? size : 0), '\0');
  std::vsnprintf(text.data(), text.size() + 1, fmt, again);
  va_end(again);
  print(text);
}

void print_error(std::string_view text) { write_all(STDERR_FILENO, text); }

int fail(std::string_view command, std::string_view message, int code) {
  std::string line = "invar";
  if (!command.empty()) line += " " + std::string(command);
  print_error(line + ": " + escape_control(message) + "\n");
  return code;
}

int fail(std::string_view command, const Error& error) {
  return fail(command, error.message, exit_code(error.code));
}

bool stdin_is_terminal() { return ::isatty(STDIN_FILENO) == 1; }
bool stdout_is_terminal() { return ::isatty(STDOUT_FILENO) == 1; }
bool stderr_is_terminal() { return ::isatty(STDERR_FILENO) == 1; }

int terminal_width() {
  winsize size{};
  if (::ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20) return size.ws_col;
  return 80;
}

std::string for_stdout(std::string_view text) {
  return stdout_is_terminal() ? escape_control(text) : std::string(text);
}

std::string dim(std::string_view text) {
  const char* no_color = std::getenv("NO_COLOR");
  if (!stderr_is_terminal() || (no_color != nullptr && *no_color != '\0')) return std::string(text);
  return "\x1b[2m" + std::string(text) + "\x1b[0m";
}

std::string human_bytes(uint64_t bytes) {
  static constexpr const char* kUnits[] = {"bytes", "kB", "MB", "GB", "TB", "PB", "EB"};
  double value = static_cast<double>(bytes);
  int unit = 0;
  while (value >= 999.5 && unit < 6) {
    value /= 1000;
    ++unit;
  }
  if (unit == 0) return format("%d bytes", static_cast<int>(bytes));
  return format(value < 9.995   ? "%.2f %s"
                : value < 99.95 ? "%.1f %s"
                                : "%.0f %s",
                value, kUnits[unit]);
}

void Interrupts::start() {
  InterruptState& state = interrupt_state();
  state.has_terminal = stdin_is_terminal() && ::tcgetattr(STDIN_FILENO, &state.found) == 0;
  sigset_t signals;
  sigemptyset(&signals);
  // What the caller ignores (nohup, a background job) stays ignored.
  for (const int signal : {SIGINT, SIGTERM, SIGHUP}) {
    struct sigaction action{};
    if (::sigaction(signal, nullptr, &action) == 0 && action.sa_handler != SIG_IGN)
      sigaddset(&signals, signal);
  }
  ::pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread(watch_signals, signals).detach();
}

void Interrupts::set_stop(std::function<void()> stop) {
  InterruptState& state = interrupt_state();
  const std::lock_guard lock(state.mutex);
  state.stop = std::move(stop);
  state.stopped = false;
}

void Interrupts::clear_stop() { set_stop(nullptr); }

void Interrupts::set_last_words(std::string text) {
  InterruptState& state = interrupt_state();
  const std::lock_guard lock(state.mutex);
  state.last_words = std::move(text);
}

}  // namespace invar::cli
