// The recurrent ops of the cpu backend: who computes what on which thread. The arithmetic stands at
// the top of recurrent_inl.h and recurrent_rows_inl.h, the memory of the states in state_cache.h.
#pragma once

#include <memory>

#include "backend/cpu/isa.h"
#include "backend/recurrent_ops.h"
#include "base/threads.h"

namespace invar::cpu {

// The set must be available; `pool` outlives it.
std::unique_ptr<RecurrentOps> make_recurrent_ops(ThreadPool& pool, Isa isa);

}  // namespace invar::cpu
