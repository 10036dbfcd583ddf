// Memory of the device and pinned memory of the host. No memory left for what lives long (weights,
// pages) is an Error; for the few buffers of a step it ends the process, as the memory plan has set
// room for them aside.
#pragma once

#include <cuda_runtime_api.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "backend/cuda/cuda_check.h"
#include "base/check.h"
#include "base/result.h"

namespace invar::cuda {

class DeviceMemory {
 public:
  DeviceMemory() = default;
  ~DeviceMemory() { cudaFree(data_); }
  DeviceMemory(DeviceMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceMemory& operator=(DeviceMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  static Result<DeviceMemory> make(size_t num_bytes) {
    DeviceMemory memory;
    const cudaError_t error = cudaMalloc(&memory.data_, std::max<size_t>(num_bytes, 1));
    if (error == cudaErrorMemoryAllocation) {
      cudaGetLastError();  // not sticky: clear it
      size_t free = 0, total = 0;
      CUDA_CHECK(cudaMemGetInfo(&free, &total));
      return resource_exhausted("no device memory for %zu bytes; %zu of %zu are free", num_bytes,
                                free, total);
    }
    CUDA_CHECK(error);
    return memory;
  }
  static DeviceMemory make_or_end(size_t num_bytes) {
    auto memory = make(num_bytes);
    INVAR_CHECK(memory.ok(), "%s", memory.ok() ? "" : memory.error().message.c_str());
    return *std::move(memory);
  }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  void* data_ = nullptr;
};

// Copies and fills that are done when they return. The steps' stream does not wait for the default
// one, on which these run, and CUDA's own calls may come back before the device is through.
inline void copy_now(void* to, const void* from, size_t num_bytes, cudaMemcpyKind kind) {
  CUDA_CHECK(cudaMemcpy(to, from, num_bytes, kind));
  CUDA_CHECK(cudaDeviceSynchronize());
}
inline void clear_now(void* memory, size_t num_bytes) {
  CUDA_CHECK(cudaMemset(memory, 0, num_bytes));
  CUDA_CHECK(cudaDeviceSynchronize());
}

class PinnedMemory {
 public:
  PinnedMemory() = default;
  explicit PinnedMemory(size_t num_bytes) {
    CUDA_CHECK(cudaMallocHost(&data_, std::max<size_t>(num_bytes, 1)));
  }
  ~PinnedMemory() { cudaFreeHost(data_); }
  PinnedMemory(PinnedMemory&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PinnedMemory& operator=(PinnedMemory&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  uint8_t* data() const { return static_cast<uint8_t*>(data_); }

 private:
  void* data_ = nullptr;
};

}  // namespace invar::cuda
