// Tables of cos and sin by position, and rows to threads for rope; the rotation is rope_inl.h.
#include "backend/cpu/rope.h"

#include "backend/cpu/row_phase.h"
#include "backend/cpu/simd_kernels.h"
#include "base/check.h"
#include "base/math.h"

namespace invar::cpu {
namespace {

constexpr int kBlockRows = 256;
// Past this the tables are dropped and begun anew: 64 pairs at 131,072 positions just fit.
constexpr size_t kMaxTableBytes = size_t{64} << 20;
constexpr size_t kMaxTables = 8;  // a model has one or two

bool same_spec(const RopeSpec& a, const RopeSpec& b) {
  return a.magnitude == b.magnitude && a.inv_freq == b.inv_freq;
}

void fill_row(float* row, const RopeSpec& spec, int32_t position) {
  const size_t n = spec.inv_freq.size();
  for (size_t i = 0; i < n; ++i) {
    const double angle = static_cast<double>(position) * spec.inv_freq[i];
    row[i] = static_cast<float>(cos_f64(angle) * spec.magnitude);
    row[n + i] = static_cast<float>(sin_f64(angle) * spec.magnitude);
  }
}

}  // namespace

struct RopeTables::Block {
  std::vector<float> values;  // [kBlockRows][2 * number of pairs]
  bool filled[kBlockRows] = {};
};

std::span<const float* const> RopeTables::find(const RopeSpec& spec,
                                               std::span<const int32_t> positions) {
  if (num_bytes_ > kMaxTableBytes || tables_.size() > kMaxTables) {
    tables_.clear();
    num_bytes_ = 0;
  }
  Table* table = nullptr;
  for (Table& t : tables_)
    if (same_spec(t.spec, spec)) table = &t;
  if (table == nullptr) table = &tables_.emplace_back(Table{spec, {}});

  const size_t row_size = 2 * spec.inv_freq.size();
  rows_.clear();
  for (const int32_t position : positions) {
    INVAR_CHECK(position >= 0, "position %d", position);
    const size_t block_index = static_cast<size_t>(position / kBlockRows);
    const size_t slot = static_cast<size_t>(position % kBlockRows);
    if (table->blocks.size() <= block_index) table->blocks.resize(block_index + 1);
    std::shared_ptr<Block>& block = table->blocks[block_index];
    if (block == nullptr) {
      block = std::make_shared<Block>();
      block->values.resize(kBlockRows * row_size);
      num_bytes_ += block->values.size() * sizeof(float);
    }
    float* row = block->values.data() + slot * row_size;
    if (!block->filled[slot]) {
      fill_row(row, spec, position);
      block->filled[slot] = true;
    }
    rows_.push_back(row);
  }
  return rows_;
}

void rope(ThreadPool& pool, Isa isa, Tensor x, int head_dim, std::span<const int32_t> positions,
          const RopeSpec& spec, RopeTables& tables) {
  const int64_t num_pairs = static_cast<int64_t>(spec.inv_freq.size());
  INVAR_CHECK(2 * num_pairs <= head_dim, "%ld rope pairs in heads of %d", long{num_pairs},
              head_dim);
  const std::span<const float* const> rows = tables.find(spec, positions);
  const auto kernel = simd_kernels(isa).rope;
  for_rows(pool, x.num_rows, x.num_cols, [&](int64_t t) {
    const float* cos = rows[static_cast<size_t>(t)];
    float* row = x.row(t);
    for (int64_t i = 0; i + head_dim <= x.num_cols; i += head_dim)
      kernel(row + i, cos, cos + num_pairs, num_pairs);
  });
}

}  // namespace invar::cpu
