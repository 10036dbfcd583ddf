// Log lines for operators on stderr: "invar: level key=value ...". Prompts and replies are never
// logged. Control characters in values are escaped.
#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace invar {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

void set_log_level(LogLevel level);  // default kWarning
void log(LogLevel level, const char* fmt, ...) INVAR_PRINTF(2, 3);

// `text` with control characters (also C1 and ESC) as \xNN: safe for a log line or a terminal.
std::string escape_control(std::string_view text);

}  // namespace invar
