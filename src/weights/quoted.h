// Names from a file as they stand in messages: on one line, harmless to a terminal, not endless.
#pragma once

#include <string>
#include <string_view>

#include "base/log.h"

namespace invar {

// 'name', control characters and line ends as \xNN, cut after 100 bytes.
inline std::string quoted(std::string_view name) {
  constexpr size_t kMaxBytes = 100;
  size_t size = name.size();
  if (size > kMaxBytes) {
    size = kMaxBytes;
    while (size > 0 && (static_cast<unsigned char>(name[size]) & 0xC0) == 0x80) --size;
  }
  std::string text = escape_control(name.substr(0, size));
  for (size_t at = 0; (at = text.find_first_of("\n\t", at)) != std::string::npos; ++at)
    text.replace(at, 1, text[at] == '\n' ? "\\x0a" : "\\x09");
  return format("'%s%s'", text.c_str(), size < name.size() ? "..." : "");
}

}  // namespace invar
