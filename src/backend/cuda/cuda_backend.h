// The CUDA backend: backend.h on the kernels of this folder. A step is recorded and runs in
// synchronize(), on one stream of its own; logits are in the host's (pinned) memory after it.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace invar {

// kUnsupported: no device of compute capability 9.0.
Result<std::unique_ptr<Backend>> make_cuda_backend(const BackendOptions& options);

// How steps ran so far, of a backend that make_cuda_backend() made.
struct CudaStepCounts {
  int64_t steps = 0, graph_steps = 0, captures = 0;
};
CudaStepCounts cuda_step_counts(const Backend& backend);

}  // namespace invar
