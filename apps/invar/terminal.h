// What all commands share of the terminal: writing, width, colour, errors, and Ctrl-C. Knows no
// command and no model.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace invar::cli {

// Writes all of `text` to standard output at once (no buffer that a signal could lose). A closed
// pipe ends the process quietly with kExitClosedPipe, any other error with a line and kExitFailed.
void print(std::string_view text);
void printf(const char* fmt, ...) INVAR_PRINTF(1, 2);

// The same to standard error; errors there are ignored.
void print_error(std::string_view text);

// "invar COMMAND: message", control characters escaped; returns `code`.
int fail(std::string_view command, std::string_view message, int code);
// The same with the exit code that belongs to a model's error.
int fail(std::string_view command, const Error& error);

bool stdin_is_terminal();
bool stdout_is_terminal();
bool stderr_is_terminal();
int terminal_width();  // of standard error, 80 when unknown

// `text` made safe for where standard output goes: control characters (ESC, C1) are escaped on a
// terminal, where a model could otherwise drive it; a file or pipe gets the bytes as they are.
std::string for_stdout(std::string_view text);

// Dim text for a terminal on standard error; unchanged when that is none or NO_COLOR is set.
std::string dim(std::string_view text);

// "91.7 MB", decimal units as disks and networks count them.
std::string human_bytes(uint64_t bytes);

// Ctrl-C, SIGTERM and SIGHUP are taken by one thread, so that no other is ever interrupted. It ends
// the process (code 128 + signal) with the terminal as it was found, unless a reply is running.
class Interrupts {
 public:
  // Call once, before other threads start: they inherit the blocked signals.
  static void start();
  // While `stop` is set, the first Ctrl-C calls it (from the signal thread) and the next one ends
  // the process.
  static void set_stop(std::function<void()> stop);
  static void clear_stop();
  // Printed when the process is ended by Ctrl-C ("run the same command again to go on").
  static void set_last_words(std::string text);
};

// Ctrl-C goes to `stop` while this lives.
class StopOnInterrupt {
 public:
  explicit StopOnInterrupt(std::function<void()> stop) { Interrupts::set_stop(std::move(stop)); }
  ~StopOnInterrupt() { Interrupts::clear_stop(); }
  StopOnInterrupt(const StopOnInterrupt&) = delete;
  StopOnInterrupt& operator=(const StopOnInterrupt&) = delete;
};

}  // namespace invar::cli
