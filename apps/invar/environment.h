// What the command line reads of the environment: variables, and the folders that they name.
#pragma once

#include <string>

namespace invar::cli {

std::string environment(const char* name);  // "" where it is not set

// Of what can be made again: $XDG_CACHE_HOME/invar/NAME, else ~/.cache/invar/NAME; "" without a
// home folder.
std::string cache_folder(const char* name);

}  // namespace invar::cli
