// The CUDA backend: backend.h on the kernels of this folder. Kernels run on one stream of its own,
// in the order of the calls; lm_head copies its logits to the host tensor, complete after
// synchronize().
#pragma once

#include <memory>

#include "backend/backend.h"

namespace invar {

// kUnsupported: no device of compute capability 9.0.
Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options);

}  // namespace invar
