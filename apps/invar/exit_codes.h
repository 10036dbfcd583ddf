// Exit codes of every invar command; docs/command-line.md and `invar --help` list them.
#pragma once

#include "invar/result.h"

namespace invar::cli {

enum ExitCode : int {
  kExitOk = 0,
  kExitFailed = 1,         // the command ran and its answer is no, or the network refused
  kExitUsage = 2,          // bad flag, value or combination
  kExitModel = 3,          // a model or file is missing, unreadable or corrupt
  kExitUnsupported = 4,    // architecture, format or tokenizer that this build does not run
  kExitMemory = 5,         // does not fit
  kExitAddress = 6,        // serve: in use or not bindable
  kExitInternal = 70,      // serve: a mistake of our own
  kExitStuck = 71,         // serve: the watchdog found an engine that stands still
  kExitDeviceLost = 72,    // a GPU fault
  kExitInterrupted = 130,  // Ctrl-C
  kExitClosedPipe = 141,   // whoever read our output went away
};

// For an error that came out of opening or running a model.
inline int exit_code(ErrorCode code) {
  switch (code) {
    case ErrorCode::kUnsupported:
      return kExitUnsupported;
    case ErrorCode::kResourceExhausted:
      return kExitMemory;
    case ErrorCode::kCancelled:
      return kExitInterrupted;
    case ErrorCode::kUnavailable:
      return kExitFailed;
    default:
      return kExitModel;
  }
}

}  // namespace invar::cli
