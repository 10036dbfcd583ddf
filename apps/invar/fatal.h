// How a server that cannot go on says so: the last line on standard error, and the same where
// Kubernetes looks for it.
#pragma once

#include <string>

namespace invar::cli {

constexpr const char* kTerminationLog = "/dev/termination-log";  // Kubernetes' own

// "fatal: NAME: cause", also to the file `termination_log` if that is there and writable. Returns
// `code`.
int fatal(const std::string& termination_log, const std::string& cause, int code);

// From now on a mistake of our own (INVAR_CHECK, an exception that nobody caught) ends the process
// with the last line `fatal: internal: ...` and exit code 70, a lost device with `fatal:
// device_lost: ...` and 72.
void end_mistakes_as_fatal(const std::string& termination_log);

}  // namespace invar::cli
