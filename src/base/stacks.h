// Where every thread of this process is, for the log of a server that stands still. Linux.
#pragma once

namespace invar {

// Writes each thread's name and stack to `fd`, one line a frame: "binary(+0x1234)" is what
// addr2line takes. Uses a real-time signal; a thread that does not answer within a moment is said
// to. Meant to be called once, before the end: who waits in a system call is interrupted.
void write_all_stacks(int fd);

}  // namespace invar
