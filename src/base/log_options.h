// How and where log lines (log.h) are written. Default: plain lines on stderr.
#pragma once

#include <string>

#include "base/result.h"

namespace invar {

struct LogOptions {
  bool to_stderr = true;
  std::string file = {};    // also appended to, if not ""
  bool jsonl = false;       // {"time":...,"level":...,"message":...}
  bool timestamps = false;  // UTC, before each line
  bool prefix = true;       // "invar: info: "
  bool color = false;       // of the level, on stderr
};
// Once, before other threads log. Error: the file cannot be opened.
Result<void> set_log_options(const LogOptions& options);

}  // namespace invar
