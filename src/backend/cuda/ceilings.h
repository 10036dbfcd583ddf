// What this chip can do at best, measured by the run that quotes percentages of it: streaming reads
// and wgmma without any memory. Used by `invar bench` and tools/cuda_bench.cc.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "backend/backend.h"

namespace invar::cuda {

void launch_read(cudaStream_t stream, const void* data, size_t bytes, void* sink);
// One launch does launch_wgmma_flops() operations.
void launch_wgmma(cudaStream_t stream, void* sink);
double launch_wgmma_flops();

// Both, the best of a few launches each.
DeviceRates measure_device_rates(cudaStream_t stream);

}  // namespace invar::cuda
