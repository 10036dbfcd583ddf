// CUDA_CHECK: a fault leaves the context unusable, so it is logged and ends the process with a
// documented code (specs/api.md 16.3: device_lost, 72; base/check_handler.h); a supervisor starts
// it again. Running out of memory is no fault: DeviceMemory::make (device_memory.h) asks and
// returns an Error.
#pragma once

#include <cuda_runtime_api.h>

namespace invar::cuda {

// What this thread is launching: named in the log line of a fault. A fault is noticed by a later
// call, so after a step that ran as a graph this says which step it was, not which kernel.
// `what` is a string literal.
void note_cuda_work(const char* what, int rows, int ops);

[[noreturn]] void cuda_failed(const char* file, int line, const char* call, cudaError_t error);

}  // namespace invar::cuda

#define CUDA_CHECK(call)                                                  \
  do {                                                                    \
    const cudaError_t cuda_error_ = (call);                               \
    if (cuda_error_ != cudaSuccess) [[unlikely]]                          \
      ::invar::cuda::cuda_failed(__FILE__, __LINE__, #call, cuda_error_); \
  } while (false)
