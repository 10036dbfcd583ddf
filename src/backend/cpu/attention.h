// Attention of the new rows of several sequences over their paged keys and values, which include
// the new rows themselves: those are stored first. The arithmetic stands at the top of
// attention_inl.h.
#pragma once

#include <span>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kv_cache.h"
#include "base/threads.h"

namespace invar::cpu {

void attention(ThreadPool& pool, Isa isa, Tensor y, Tensor q, Tensor k, Tensor v,
               std::span<const Window> windows, CpuKvCache& cache, const AttentionArgs& args);

}  // namespace invar::cpu
