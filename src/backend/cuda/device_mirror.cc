#include "backend/cuda/device_mirror.h"

#include <algorithm>
#include <iterator>

#include "backend/cuda/cuda_check.h"

namespace invar::cuda {
namespace {

size_t tensor_bytes(Tensor t) {
  return t.num_rows == 0 ? 0
                         : static_cast<size_t>((t.num_rows - 1) * t.row_stride + t.num_cols) * 4;
}

}  // namespace

DeviceMirror::~DeviceMirror() {
  while (!regions_.empty()) release(regions_.begin());
}

void DeviceMirror::release(std::map<uintptr_t, Region>::iterator region) {
  num_bytes_ -= region->second.size;
  CUDA_CHECK(cudaFreeAsync(region->second.device, stream_));  // after all that was launched
  regions_.erase(region);
}

void* DeviceMirror::find(uintptr_t begin, size_t size) const {
  auto after = regions_.upper_bound(begin);
  if (after == regions_.begin()) return nullptr;
  const auto& [start, region] = *--after;
  if (begin + size > start + region.size) return nullptr;
  return static_cast<char*>(region.device) + (begin - start);
}

void* DeviceMirror::input(Tensor t) const {
  void* device = find(reinterpret_cast<uintptr_t>(t.data), tensor_bytes(t));
  INVAR_CHECK(device != nullptr, "a tensor [%ld, %ld] that no op has written", long{t.num_rows},
              long{t.num_cols});
  return device;
}

void* DeviceMirror::output(Tensor t) {
  INVAR_CHECK(t.dtype == DType::kF32, "tensors of this backend are named by fp32 host tensors");
  const auto begin = reinterpret_cast<uintptr_t>(t.data);
  const size_t size = tensor_bytes(t);
  if (void* device = find(begin, size)) return device;
  // Regions that overlap become one with the new range, contents kept: part of them may be alive.
  uintptr_t first = begin, last = begin + size;
  auto region = regions_.upper_bound(begin);
  if (region != regions_.begin() &&
      std::prev(region)->first + std::prev(region)->second.size > begin)
    --region;
  const auto from = region;
  for (; region != regions_.end() && region->first < begin + size; ++region) {
    first = std::min(first, region->first);
    last = std::max(last, region->first + region->second.size);
  }
  Region made;
  made.size = last - first;
  CUDA_CHECK(cudaMallocAsync(&made.device, made.size, stream_));
  for (auto old = from; old != region;) {
    CUDA_CHECK(cudaMemcpyAsync(static_cast<char*>(made.device) + (old->first - first),
                               old->second.device, old->second.size, cudaMemcpyDeviceToDevice,
                               stream_));
    release(old++);
  }
  num_bytes_ += made.size;
  regions_.emplace(first, made);
  return static_cast<char*>(made.device) + (begin - first);
}

}  // namespace invar::cuda
