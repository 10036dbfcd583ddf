// for_rows: a phase of the pool with one unit a row, or a plain loop where the rows are too little
// work to share. Speed only.
#pragma once

#include <cstdint>

#include "base/threads.h"

namespace invar::cpu {

// Starting a phase costs about a microsecond, 50 when the workers sleep; below this many values an
// elementwise op is done sooner alone.
inline constexpr int64_t kMinSharedValues = 16 * 1024;

template <typename F>
void for_rows(ThreadPool& pool, int64_t num_rows, int64_t values_per_row, const F& body) {
  if (pool.num_threads() == 1 || num_rows * values_per_row < kMinSharedValues) {
    for (int64_t t = 0; t < num_rows; ++t) body(t);
    return;
  }
  pool.run(num_rows, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) body(t);
  });
}

}  // namespace invar::cpu
