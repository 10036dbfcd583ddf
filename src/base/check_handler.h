// What a failed INVAR_CHECK does in a process that ends in its own way. Apart from check.h, which
// every file includes.
#pragma once

namespace invar {

// Called with one line about the failed check, in place of printing it and aborting; it ends the
// process. Set once, at the start.
using CheckFailedHandler = void (*)(const char* line);
void on_check_failed(CheckFailedHandler handler);

}  // namespace invar
