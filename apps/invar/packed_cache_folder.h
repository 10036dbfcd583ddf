// Where the command line keeps packed weights between starts.
#pragma once

#include <string>

namespace invar::cli {

// What `--packed-cache GIVEN` means: a folder, or "" for none. GIVEN "" takes $INVAR_PACKED_CACHE,
// then $XDG_CACHE_HOME/invar/packed, then ~/.cache/invar/packed; "off" (also in the variable) is
// none, and so is a machine without a home folder.
std::string packed_cache_folder(const std::string& given);

}  // namespace invar::cli
