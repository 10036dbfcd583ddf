// Rotary position embedding, and the tables of cos and sin it reads. Angles are products in double,
// their cos and sin our own in double (base/math.h), times the magnitude, rounded once to float.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "base/threads.h"

namespace invar::cpu {

// Rows of cos and sin by position, computed when a position is first met. A cache: dropping it
// costs time only. Not thread safe; find() is called between phases.
class RopeTables {
 public:
  // For each position a row of 2 * inv_freq.size() floats, cos first. Valid until the next call.
  std::span<const float* const> find(const RopeSpec& spec, std::span<const int32_t> positions);

  size_t num_bytes() const { return num_bytes_; }

 private:
  struct Block;  // 256 positions
  struct Table {
    RopeSpec spec;
    std::vector<std::shared_ptr<Block>> blocks;  // by position / 256
  };
  std::vector<Table> tables_;
  std::vector<const float*> rows_;
  size_t num_bytes_ = 0;
};

// x[t], every head: (x0, x1) at (i, i + n) becomes fma(x0, cos, -(x1 * sin)), fma(x1, cos, x0 *
// sin).
void rope(ThreadPool& pool, Isa isa, Tensor x, int head_dim, std::span<const int32_t> positions,
          const RopeSpec& spec, RopeTables& tables);

}  // namespace invar::cpu
