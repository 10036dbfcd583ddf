// What this chip can do at best, measured by the run that quotes percentages of it: streaming reads
// and wgmma without any memory. Used by tools/cuda_bench.cc only.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

namespace invar::cuda {

void launch_read(cudaStream_t stream, const void* data, size_t bytes, void* sink);
// One launch does launch_wgmma_flops() operations.
void launch_wgmma(cudaStream_t stream, void* sink);
double launch_wgmma_flops();

}  // namespace invar::cuda
