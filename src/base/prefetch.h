// Reading ahead in a mapped file.
#pragma once

#include <cstddef>
#include <cstdint>

namespace invar {

// Asks the kernel to read the pages of a mapping from the disk, and does not wait for them. Speed
// only: bytes that are no mapping, or that nobody reads later, do no harm.
void prefetch_pages(const uint8_t* data, size_t size);

}  // namespace invar
