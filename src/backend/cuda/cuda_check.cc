#include "backend/cuda/cuda_check.h"

#include <cstdlib>

#include "base/check_handler.h"
#include "base/log.h"

namespace invar::cuda {
namespace {

struct Work {
  const char* what = "none";
  int rows = 0, ops = 0;
};
thread_local Work work;

}  // namespace

void note_cuda_work(const char* what, int rows, int ops) { work = {what, rows, ops}; }

void cuda_failed(const char* file, int line, const char* call, cudaError_t error) {
  const std::string fault =
      format("cuda_fault error=%s text=\"%s\" work=\"%s\" rows=%d ops=%d at=%s:%d call=\"%s\"",
             cudaGetErrorName(error), cudaGetErrorString(error), work.what, work.rows, work.ops,
             file, line, call);
  log(LogLevel::kError, "%s", fault.c_str());
  handle_fault(fault.c_str(), kDeviceLostCode);
  std::_Exit(kDeviceLostCode);
}

}  // namespace invar::cuda
