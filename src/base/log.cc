#include "base/log.h"

#include <fcntl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <new>

#include "base/json.h"
#include "base/log_options.h"

namespace invar {
namespace {

constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
constexpr const char* kColors[] = {"\033[2m", "", "\033[33m", "\033[31m"};

std::atomic<LogLevel> g_log_level{LogLevel::kWarning};
LogOptions g_options;
int g_file = -1;

std::string now() {
  using namespace std::chrono;
  const auto time = system_clock::now().time_since_epoch();
  const std::time_t whole = duration_cast<seconds>(time).count();
  std::tm utc{};
  ::gmtime_r(&whole, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%S", &utc);
  return format("%s.%03dZ", text,
                static_cast<int>(duration_cast<milliseconds>(time).count() % 1000));
}

std::string make_line(LogLevel level, const std::string& message, bool color) {
  const char* name = kNames[static_cast<int>(level)];
  if (g_options.jsonl) {
    Json json = Json::object();
    json.set("time", now());
    json.set("level", name);
    json.set("message", message);
    return json.dump() + "\n";
  }
  std::string line = g_options.timestamps ? now() + " " : "";
  const char* tint = color ? kColors[static_cast<int>(level)] : "";
  if (g_options.prefix) line += format("%sinvar: %s:%s ", tint, name, *tint ? "\033[0m" : "");
  return line + message + "\n";
}

// One call a line, so that lines of several threads do not mix. A full disk ends no server.
void write_line(int file, std::string_view line) {
  [[maybe_unused]] const ssize_t written = ::write(file, line.data(), line.size());
}

}  // namespace

void set_log_level(LogLevel level) { g_log_level = level; }

Result<void> set_log_options(const LogOptions& options) {
  if (!options.file.empty()) {
    const int file = ::open(options.file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640);
    if (file < 0)
      return invalid_argument("%s: cannot be written: %s", options.file.c_str(),
                              std::strerror(errno));
    g_file = file;
  }
  g_options = options;
  return {};
}

void log(LogLevel level, const char* fmt, ...) {
  if (level < g_log_level) return;
  char text[2048];
  va_list args;
  va_start(args, fmt);
  std::vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  // One line each, whatever a value holds: a file's name must not look like a line of its own.
  try {
    std::string message = escape_control(text);
    for (char& c : message)
      if (c == '\n') c = ' ';
    if (g_options.to_stderr) write_line(STDERR_FILENO, make_line(level, message, g_options.color));
    if (g_file >= 0) write_line(g_file, make_line(level, message, false));
  } catch (const std::bad_alloc&) {  // who says so may be in the middle of mending it
    constexpr std::string_view kNoMemory = "invar: (no memory for this log line)\n";
    for (const int file : {g_options.to_stderr ? STDERR_FILENO : -1, g_file})
      if (file >= 0) write_line(file, kNoMemory);
  }
}

std::string escape_control(std::string_view text) {
  std::string out;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    // C1 controls are U+0080..U+009F: bytes C2 80..9F in UTF-8.
    const bool c1 = byte == 0xC2 && i + 1 < text.size() &&
                    static_cast<uint8_t>(text[i + 1]) >= 0x80 &&
                    static_cast<uint8_t>(text[i + 1]) < 0xA0;
    if (c1) {
      out += format("\\x%02x", static_cast<uint8_t>(text[++i]));
    } else if ((byte < 0x20 && byte != '\n' && byte != '\t') || byte == 0x7F) {
      out += format("\\x%02x", byte);
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace invar
