// Flags that launchers of llama-server give and that do nothing here, and those that are refused
// because they would change replies or reach for what is not built (specs/api.md 16.2).
#pragma once

#include "flags.h"

namespace invar::cli {

void add_foreign_flags(FlagSet& flags);

}  // namespace invar::cli
