#include "base/prefetch.h"

#include <sys/mman.h>
#include <unistd.h>

namespace invar {

void prefetch_pages(const uint8_t* data, size_t size) {
  if (size == 0) return;
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  const auto address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = address / page * page;
  ::madvise(reinterpret_cast<void*>(begin), address + size - begin, MADV_WILLNEED);
}

}  // namespace invar
