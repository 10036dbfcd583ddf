// What a failed INVAR_CHECK, or a device that is lost, does in a process that ends in its own way.
// Apart from check.h, which every file includes.
#pragma once

namespace invar {

// Exit codes of processes that end so.
inline constexpr int kCheckFailedCode = 70, kDeviceLostCode = 72;

// Called with one line about the fault and the exit code, in place of printing the line and
// aborting; it ends the process. Set once, at the start.
using FaultHandler = void (*)(const char* line, int exit_code);
void on_fault(FaultHandler handler);

// Ends the process by the handler; returns if there is none.
void handle_fault(const char* line, int exit_code);

}  // namespace invar
