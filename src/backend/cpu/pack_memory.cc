#include "backend/cpu/pack_memory.h"

#include <sys/mman.h>

namespace invar::cpu {
namespace {

constexpr size_t kHugePage = size_t{2} << 20;
constexpr size_t kChunk = size_t{64}
                          << 20;  // address space; pages that nobody touches cost nothing

// num_bytes from a 2 MiB boundary on.
PanelMemory map(size_t num_bytes) {
  const size_t size = num_bytes + kHugePage;
  void* base = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED) return nullptr;
  const auto address = reinterpret_cast<uintptr_t>(base);
  auto* aligned = static_cast<uint8_t*>(base) + (kHugePage - address % kHugePage) % kHugePage;
  madvise(aligned, num_bytes, MADV_HUGEPAGE);
  return {aligned, [base, size](uint8_t*) { munmap(base, size); }};
}

}  // namespace

PanelMemory PanelArena::allocate(size_t num_bytes) {
  const size_t size = (num_bytes + 63) / 64 * 64;
  if (size > kChunk / 4) return map(size);
  const std::lock_guard lock(mutex_);
  if (chunk_ == nullptr || used_ + size > kChunk) {
    chunk_ = map(kChunk);
    used_ = 0;
    if (chunk_ == nullptr) return nullptr;
  }
  uint8_t* memory = chunk_.get() + used_;
  used_ += size;
  return {chunk_, memory};
}

}  // namespace invar::cpu
