#include "backend/cuda/cuda_check.h"

#include <cstdlib>

#include "base/log.h"

namespace invar::cuda {

void cuda_failed(const char* file, int line, const char* call, cudaError_t error) {
  log(LogLevel::kError, "cuda_fault error=%s text=\"%s\" at=%s:%d call=\"%s\"",
      cudaGetErrorName(error), cudaGetErrorString(error), file, line, call);
  std::_Exit(kCudaFaultExitCode);
}

}  // namespace invar::cuda
