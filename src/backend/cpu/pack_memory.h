// Where packed weights live: a few large mappings in 2 MiB pages, from which matrices are cut. Most
// matrices of a small model are below 2 MiB; a mapping each would leave all of them in 4 KiB pages,
// which cost 10 to 26 % of the read bandwidth (design/cpu-kernels.md section 16).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>

namespace invar::cpu {

using PanelMemory = std::shared_ptr<uint8_t[]>;

class PanelArena {
 public:
  // Zeroed, 64-byte aligned; null when there is no memory. A mapping goes when the last of its
  // matrices goes, whatever becomes of the arena. Callable from several threads.
  PanelMemory allocate(size_t num_bytes);

 private:
  std::mutex mutex_;
  PanelMemory chunk_;
  size_t used_ = 0;
};

}  // namespace invar::cpu
