// What this machine can do at most, measured in the same process and second as what is compared
// with it: reading memory, and the byte dots of an instruction set.
#pragma once

#include "backend/cpu/isa.h"
#include "base/threads.h"

namespace invar::cpu {

// Bytes a second that the pool's threads read together, one stream each, from memory that no cache
// holds; best of a few passes. About 0.2 s.
double probe_read_bandwidth(ThreadPool& pool);

// Integer operations a second (a multiply-add counts two) of the set's byte dot from registers, all
// threads together, best of a few windows. 0: no ceiling is known for the set. About 0.05 s.
double probe_byte_dots(ThreadPool& pool, Isa isa);

}  // namespace invar::cpu
