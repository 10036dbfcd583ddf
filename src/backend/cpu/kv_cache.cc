// One anonymous mapping for all pages: the kernel hands out memory when a page is first written, so
// a large cache costs nothing until it is used.
#include "backend/cpu/kv_cache.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstring>
#include <limits>

#include "base/check.h"

namespace invar::cpu {
namespace {

// Heads begin at cache lines.
constexpr size_t kAlign = 64;

size_t head_bytes(const KvLayerShape& shape) {  // K and V of one head, one page
  const size_t bytes = size_t{2} * kPagePositions * static_cast<size_t>(shape.head_dim) * 2;
  return (bytes + kAlign - 1) / kAlign * kAlign;
}

}  // namespace

size_t kv_page_bytes(std::span<const KvLayerShape> layers) {
  size_t bytes = 0;
  for (const KvLayerShape& shape : layers)
    bytes += static_cast<size_t>(shape.num_kv_heads) * head_bytes(shape);
  return bytes;
}

Result<std::unique_ptr<KvCache>> CpuKvCache::make(std::span<const KvLayerShape> layers,
                                                  int num_pages) {
  if (num_pages < 1) return invalid_argument("a KV cache of %d pages; at least 1", num_pages);
  std::unique_ptr<CpuKvCache> cache(new CpuKvCache());
  cache->layers_.assign(layers.begin(), layers.end());
  for (const KvLayerShape& shape : layers) {
    INVAR_CHECK(shape.num_kv_heads > 0 && shape.head_dim > 0, "KV layer of %d heads x %d",
                shape.num_kv_heads, shape.head_dim);
    cache->layer_offset_.push_back(cache->page_bytes_);
    cache->page_bytes_ += static_cast<size_t>(shape.num_kv_heads) * head_bytes(shape);
  }
  const size_t page_bytes = cache->page_bytes_, pages = static_cast<size_t>(num_pages);
  if (page_bytes > std::numeric_limits<size_t>::max() / 2 / pages)
    return resource_exhausted("KV cache of %d pages of %zu bytes does not fit in an address space",
                              num_pages, page_bytes);
  // Kernels read whole vectors: the last one of the last head may end past it.
  const size_t bytes = page_bytes * pages + kAlign;
  void* data = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED)
    return resource_exhausted(
        "KV cache: %zu bytes (%d pages of %zu) refused by the system: %s; ask for a shorter "
        "context "
        "or fewer sequences",
        bytes, num_pages, page_bytes, std::strerror(errno));
  madvise(data, bytes, MADV_HUGEPAGE);  // speed only
  cache->data_ = static_cast<uint8_t*>(data);
  cache->num_pages = num_pages;
  cache->num_bytes = bytes;
  return std::unique_ptr<KvCache>(std::move(cache));
}

CpuKvCache::~CpuKvCache() {
  if (data_ != nullptr) munmap(data_, num_bytes);
}

const KvLayerShape& CpuKvCache::layer_shape(int layer) const {
  INVAR_CHECK(layer >= 0 && static_cast<size_t>(layer) < layers_.size(), "layer %d of %zu", layer,
              layers_.size());
  return layers_[static_cast<size_t>(layer)];
}

void CpuKvCache::copy_page(int from, int to) {
  INVAR_CHECK(from >= 0 && from < num_pages && to >= 0 && to < num_pages, "page %d to %d of %d",
              from, to, num_pages);
  std::memcpy(data_ + static_cast<size_t>(to) * page_bytes_,
              data_ + static_cast<size_t>(from) * page_bytes_, page_bytes_);
}

std::vector<uint8_t> CpuKvCache::read_page(int page) const {
  INVAR_CHECK(page >= 0 && page < num_pages, "page %d of %d", page, num_pages);
  const uint8_t* begin = data_ + static_cast<size_t>(page) * page_bytes_;
  return {begin, begin + page_bytes_};
}

void CpuKvCache::write_page(int page, std::span<const uint8_t> bytes) {
  INVAR_CHECK(page >= 0 && page < num_pages && bytes.size() == page_bytes_,
              "%zu bytes for page %d of %d", bytes.size(), page, num_pages);
  std::memcpy(data_ + static_cast<size_t>(page) * page_bytes_, bytes.data(), bytes.size());
}

uint16_t* CpuKvCache::head_block(int page, int layer, int kv_head) {
  const KvLayerShape& shape = layer_shape(layer);
  INVAR_CHECK(page >= 0 && page < num_pages, "page %d of %d", page, num_pages);
  INVAR_CHECK(kv_head >= 0 && kv_head < shape.num_kv_heads, "kv head %d of %d", kv_head,
              shape.num_kv_heads);
  const size_t offset = static_cast<size_t>(page) * page_bytes_ +
                        layer_offset_[static_cast<size_t>(layer)] +
                        static_cast<size_t>(kv_head) * head_bytes(shape);
  return reinterpret_cast<uint16_t*>(data_ + offset);
}

uint16_t* CpuKvCache::keys(int page, int layer, int kv_head) {
  return head_block(page, layer, kv_head);
}

uint16_t* CpuKvCache::values(int page, int layer, int kv_head) {
  const size_t keys_size =
      size_t{kPagePositions} * static_cast<size_t>(layer_shape(layer).head_dim);
  return head_block(page, layer, kv_head) + keys_size;
}

}  // namespace invar::cpu
