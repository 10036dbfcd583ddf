// The linear kernels of one packed kind: a translation unit of its own, so that kinds compile in
// parallel.
#include "backend/cuda/linear_kernels.cuh"

namespace invar::cuda {
template struct LinearKernels<PackedKind::kBf16>;
}  // namespace invar::cuda
