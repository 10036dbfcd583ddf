// Memory of the cpu backend's recurrent states. Slots follow one another; for every slot and layer:
//   kept   [conv_kernel - 1][conv_channels] fp32, oldest row first, padded to a cache line
//   state  for every head, blocks of 32 value columns, each [key_dim][32] fp32; the last block has
//   16
//          where they suffice. Columns past value_dim are padding that nobody sees.
// A block of 128 keys (16 KiB) stays in the L1 cache while a kernel goes over its rows.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/recurrent_ops.h"

namespace invar::cpu {

size_t state_slot_bytes(std::span<const RecurrentLayerShape> layers);

class CpuStateCache final : public StateCache {
 public:
  static Result<std::unique_ptr<StateCache>> make(std::span<const RecurrentLayerShape> layers,
                                                  int num_slots);
  ~CpuStateCache() override;
  CpuStateCache(const CpuStateCache&) = delete;
  CpuStateCache& operator=(const CpuStateCache&) = delete;

  const RecurrentLayerShape& layer_shape(int layer) const;
  float* kept(int slot, int layer);
  float* head(int slot, int layer, int head);
  // A head's floats, with padding.
  static size_t head_floats(const RecurrentLayerShape& shape);

  std::span<uint8_t> slot_bytes(int slot);

 private:
  CpuStateCache() = default;
  float* layer_floats(int slot, int layer);

  std::vector<RecurrentLayerShape> layers_;
  std::vector<size_t> layer_offset_;  // in floats from the start of a slot
  size_t slot_floats_ = 0;
  float* data_ = nullptr;
};

}  // namespace invar::cpu
