// Attention of the new rows of several sequences over their paged keys and values, which include
// the new rows themselves: those are stored first. The arithmetic stands at the top of
// attention_inl.h; here and in attention.cc is only who computes what.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/kv_cache.h"
#include "base/threads.h"

namespace invar::cpu {

// Scratch memory kept between calls.
class AttentionWorkspace {
 public:
  // At least num_floats, 64-byte aligned; contents undefined.
  float* floats(size_t num_floats);

 private:
  struct Free {
    void operator()(float* p) const;
  };
  std::unique_ptr<float[], Free> data_;
  size_t capacity_ = 0;
};

void attention(ThreadPool& pool, Isa isa, AttentionWorkspace& workspace, Tensor y, Tensor q,
               Tensor k, Tensor v, std::span<const Window> windows, CpuKvCache& cache,
               const AttentionArgs& args);

}  // namespace invar::cpu
