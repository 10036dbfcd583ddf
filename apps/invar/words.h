// Lists in one string, as flags, variables and tables of flags hold them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace invar::cli {

// "a,b" at ',': {"a", "b"}. Empty parts are left out.
std::vector<std::string> split(std::string_view text, char separator);

}  // namespace invar::cli
