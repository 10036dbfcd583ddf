// What the ops' files share: checks of shapes, and the count for whoever watches a long step.
#pragma once

#include "base/check.h"
#include "ops/ops.h"

namespace invar::ops {

inline void check_cols(const char* op, Tensor x, int64_t expected) {
  INVAR_CHECK(x.num_cols == expected, "%s: input has %ld columns, expected %ld", op,
              long{x.num_cols}, long{expected});
}

inline void count(const Context& ctx) {
  if (ctx.num_operations != nullptr) ctx.num_operations->fetch_add(1, std::memory_order_relaxed);
}

}  // namespace invar::ops
