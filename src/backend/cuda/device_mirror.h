// Device memory behind the tensors of a step. Ops allocate tensors in a host arena; on this backend
// their host memory is only a name: the mirror maps an address range to device memory of the same
// layout. A range that was written before and is covered again is reused, so decode steps, whose
// tensors fall on the same addresses every time, allocate nothing. A call of output() may move what
// it overlaps: an op asks for its output first and for its inputs after.
//
// Layout: row r begins row_stride * 4 bytes after row r - 1, whatever the element type. Residual
// stream and results of linear are fp32; what only a linear or lm_head reads (norms, attention,
// gated_linear) is bf16 at the beginning of its row.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <map>

#include "tensor/tensor.h"

namespace invar::cuda {

class DeviceMirror {
 public:
  explicit DeviceMirror(cudaStream_t stream) : stream_(stream) {}
  ~DeviceMirror();
  DeviceMirror(const DeviceMirror&) = delete;
  DeviceMirror& operator=(const DeviceMirror&) = delete;

  // Of a tensor that some op wrote.
  void* input(Tensor t) const;
  // Of a tensor about to be written, in place or for the first time.
  void* output(Tensor t);

  size_t num_bytes() const { return num_bytes_; }

 private:
  struct Region {
    size_t size = 0;
    void* device = nullptr;
  };
  void* find(uintptr_t begin, size_t size) const;
  void release(std::map<uintptr_t, Region>::iterator region);

  cudaStream_t stream_;
  std::map<uintptr_t, Region> regions_;  // by first host address; they do not overlap
  size_t num_bytes_ = 0;
};

}  // namespace invar::cuda
