// Memory of the cpu backend's key/value pages. For every page, layer and KV head:
//   K  16 blocks of [head_dim][16 positions]  fp16: a vector is 16 positions of one dim
//   V  [256 positions][head_dim]              fp16
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"

namespace invar::cpu {

inline constexpr int kBlockPositions = 16;

size_t kv_page_bytes(std::span<const KvLayerShape> layers);

class CpuKvCache final : public KvCache {
 public:
  static Result<std::unique_ptr<KvCache>> make(std::span<const KvLayerShape> layers, int num_pages);
  ~CpuKvCache() override;
  CpuKvCache(const CpuKvCache&) = delete;
  CpuKvCache& operator=(const CpuKvCache&) = delete;

  const KvLayerShape& layer_shape(int layer) const;
  // Page `to` of every layer becomes what page `from` is.
  void copy_page(int from, int to);
  std::vector<uint8_t> read_page(int page) const;
  void write_page(int page, std::span<const uint8_t> bytes);
  uint16_t* keys(int page, int layer, int kv_head);
  uint16_t* values(int page, int layer, int kv_head);

 private:
  CpuKvCache() = default;
  uint16_t* head_block(int page, int layer, int kv_head);

  std::vector<KvLayerShape> layers_;
  std::vector<size_t> layer_offset_;  // in bytes from the start of a page
  size_t page_bytes_ = 0;
  uint8_t* data_ = nullptr;
};

}  // namespace invar::cpu
