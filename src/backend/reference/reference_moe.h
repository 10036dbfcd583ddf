// The expert ops of the reference backend: everything in double, each expert's weight rows read
// once for the rows that chose it.
#pragma once

#include <memory>

#include "backend/moe_ops.h"
#include "base/threads.h"

namespace invar {

// `pool` outlives it.
std::unique_ptr<MoeOps> make_reference_moe_ops(ThreadPool& pool);

}  // namespace invar
