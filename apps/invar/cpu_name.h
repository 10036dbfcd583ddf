// What this machine's CPU is called: beside figures, and in a tuning file's key.
#pragma once

#include <string>

namespace invar::cli {

std::string cpu_name();  // "AMD EPYC 7763", as the kernel knows it; "unknown"

}  // namespace invar::cli
