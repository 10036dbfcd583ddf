// The recurrent ops of the reference backend: sums in double, states in fp32 between rows as the
// contract has them.
#pragma once

#include <memory>

#include "backend/recurrent_ops.h"
#include "base/threads.h"

namespace invar {

// `pool` outlives it.
std::unique_ptr<RecurrentOps> make_reference_recurrent_ops(ThreadPool& pool);

}  // namespace invar
