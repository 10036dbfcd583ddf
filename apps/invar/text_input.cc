#include "text_input.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace invar::cli {

Result<std::string> read_standard_input() {
  std::string text;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t count = ::read(STDIN_FILENO, buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return io_error("standard input: %s", std::strerror(errno));
    if (count == 0) return text;
    text.append(buffer, static_cast<size_t>(count));
    if (text.size() > kMaxTextBytes)
      return invalid_argument("standard input: more than %zu bytes", kMaxTextBytes);
  }
}

}  // namespace invar::cli
