// One anonymous mapping for all slots, as kv_cache.cc has it for pages: a slot costs memory when a
// sequence first uses it.
#include "backend/cpu/state_cache.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "backend/cpu/recurrent_kernels.h"
#include "base/check.h"

namespace invar::cpu {
namespace {

constexpr size_t kLineFloats = 16;

size_t kept_floats(const RecurrentLayerShape& shape) {
  if (shape.conv_kernel < 2) return 0;
  const size_t count =
      static_cast<size_t>(shape.conv_kernel - 1) * static_cast<size_t>(shape.conv_channels);
  return (count + kLineFloats - 1) / kLineFloats * kLineFloats;
}

size_t layer_size(const RecurrentLayerShape& shape) {
  return kept_floats(shape) +
         static_cast<size_t>(shape.num_heads) * CpuStateCache::head_floats(shape);
}

}  // namespace

size_t CpuStateCache::head_floats(const RecurrentLayerShape& shape) {
  return static_cast<size_t>(shape.key_dim) * static_cast<size_t>(padded_columns(shape.value_dim));
}

size_t state_slot_bytes(std::span<const RecurrentLayerShape> layers) {
  size_t count = 0;
  for (const RecurrentLayerShape& shape : layers) count += layer_size(shape);
  return count * sizeof(float);
}

Result<std::unique_ptr<StateCache>> CpuStateCache::make(std::span<const RecurrentLayerShape> layers,
                                                        int num_slots) {
  if (num_slots < 1) return invalid_argument("%d slots of recurrent states; at least 1", num_slots);
  std::unique_ptr<CpuStateCache> cache(new CpuStateCache());
  cache->layers_.assign(layers.begin(), layers.end());
  for (const RecurrentLayerShape& shape : layers) {
    INVAR_CHECK(shape.conv_channels >= 0 && shape.num_heads >= 0 && shape.key_dim >= 0 &&
                    shape.value_dim >= 0,
                "recurrent layer of %d channels, %d heads x %d x %d", shape.conv_channels,
                shape.num_heads, shape.key_dim, shape.value_dim);
    cache->layer_offset_.push_back(cache->slot_floats_);
    cache->slot_floats_ += layer_size(shape);
  }
  const size_t slot_bytes = cache->slot_floats_ * sizeof(float);
  const size_t slots = static_cast<size_t>(num_slots);
  if (slot_bytes > std::numeric_limits<size_t>::max() / 2 / slots)
    return resource_exhausted("%d slots of %zu bytes do not fit in an address space", num_slots,
                              slot_bytes);
  const size_t bytes = slot_bytes * slots + kLineFloats * sizeof(float);  // never nothing
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return resource_exhausted(
        "recurrent states: %zu bytes (%d slots of %zu) refused by the system: %s; ask for fewer "
        "sequences",
        bytes, num_slots, slot_bytes, std::strerror(errno));
  madvise(data, bytes, MADV_HUGEPAGE);  // speed only
  cache->data_ = static_cast<float*>(data);
  cache->num_slots = num_slots;
  cache->num_bytes = bytes;
  return std::unique_ptr<StateCache>(std::move(cache));
}

CpuStateCache::~CpuStateCache() {
  if (data_ != nullptr) munmap(data_, num_bytes);
}

const RecurrentLayerShape& CpuStateCache::layer_shape(int layer) const {
  INVAR_CHECK(layer >= 0 && static_cast<size_t>(layer) < layers_.size(), "layer %d of %zu", layer,
              layers_.size());
  return layers_[static_cast<size_t>(layer)];
}

std::span<uint8_t> CpuStateCache::slot_bytes(int slot) {
  INVAR_CHECK(slot >= 0 && slot < num_slots, "state slot %d of %d", slot, num_slots);
  float* begin = data_ + static_cast<size_t>(slot) * slot_floats_;
  return {reinterpret_cast<uint8_t*>(begin), slot_floats_ * sizeof(float)};
}

float* CpuStateCache::layer_floats(int slot, int layer) {
  INVAR_CHECK(slot >= 0 && slot < num_slots, "state slot %d of %d", slot, num_slots);
  return data_ + static_cast<size_t>(slot) * slot_floats_ +
         layer_offset_[static_cast<size_t>(layer)];
}

float* CpuStateCache::kept(int slot, int layer) {
  layer_shape(layer);
  return layer_floats(slot, layer);
}

float* CpuStateCache::head(int slot, int layer, int head) {
  const RecurrentLayerShape& shape = layer_shape(layer);
  INVAR_CHECK(head >= 0 && head < shape.num_heads, "head %d of %d", head, shape.num_heads);
  return layer_floats(slot, layer) + kept_floats(shape) +
         static_cast<size_t>(head) * head_floats(shape);
}

}  // namespace invar::cpu
