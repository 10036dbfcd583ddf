// The window that a server opens its model with: --ctx-size and where its value comes from.
#pragma once

#include <string>

#include "serve_flags.h"

namespace invar::cli {

struct Window {
  int64_t context = 0;                // 0: the model's own
  const char* source = "checkpoint";  // "flag": asked for; "auto": shrunk to what fits
};

// Reads the model's headers only if it has to know what fits.
Result<Window> choose_window(const ServeFlags& flags, const std::string& path, int max_sequences);

}  // namespace invar::cli
