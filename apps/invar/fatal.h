// How a server that cannot go on says so: the last line on standard error, and the same where
// Kubernetes looks for it.
#pragma once

#include <string>

namespace invar::cli {

// "fatal: NAME: cause", also to the file `termination_log` if that is there and writable. Returns
// `code`.
int fatal(const std::string& termination_log, const std::string& cause, int code);

}  // namespace invar::cli
