// CUDA_CHECK: a fault leaves the context unusable, so it is logged and ends the process with a
// documented code (docs/cuda-kernels.md); a supervisor starts it again. Running out of memory is no
// fault: DeviceMemory::make (cuda_backend.cc) asks and returns an Error.
#pragma once

#include <cuda_runtime_api.h>

namespace invar::cuda {

inline constexpr int kCudaFaultExitCode = 70;  // EX_SOFTWARE

[[noreturn]] void cuda_failed(const char* file, int line, const char* call, cudaError_t error);

}  // namespace invar::cuda

#define CUDA_CHECK(call)                                                  \
  do {                                                                    \
    const cudaError_t cuda_error_ = (call);                               \
    if (cuda_error_ != cudaSuccess) [[unlikely]]                          \
      ::invar::cuda::cuda_failed(__FILE__, __LINE__, #call, cuda_error_); \
  } while (false)
