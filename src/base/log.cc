#include "base/log.h"

#include <atomic>
#include <cstdarg>
#include <cstdio>
#include <new>

namespace invar {
namespace {
std::atomic<LogLevel> g_log_level{LogLevel::kWarning};
}

void set_log_level(LogLevel level) { g_log_level = level; }

void log(LogLevel level, const char* fmt, ...) {
  if (level < g_log_level) return;
  char text[2048];
  va_list args;
  va_start(args, fmt);
  std::vsnprintf(text, sizeof text, fmt, args);
  va_end(args);
  // One line each, whatever a value holds: a file's name must not look like a line of its own.
  static constexpr const char* kNames[] = {"debug", "info", "warning", "error"};
  const char* name = kNames[static_cast<int>(level)];
  try {
    std::string line = escape_control(text);
    for (char& c : line)
      if (c == '\n') c = ' ';
    std::fprintf(stderr, "invar: %s: %s\n", name, line.c_str());
  } catch (const std::bad_alloc&) {  // who says so may be in the middle of mending it
    std::fprintf(stderr, "invar: %s: (no memory for this line)\n", name);
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
