// Text from standard input, read whole.
#pragma once

#include <string>

#include "base/result.h"

namespace invar::cli {

inline constexpr size_t kMaxTextBytes = 256u << 20;

Result<std::string> read_standard_input();

}  // namespace invar::cli
