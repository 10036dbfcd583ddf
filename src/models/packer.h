// Packer: how a model's weights get into the backend's form, one request at a time, with progress,
// a look ahead into the file and a count of what was packed; and the rows of a matrix in another
// order.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "models/model.h"
#include "models/model_source.h"

namespace invar {

// The kernel reads the layer after while one is packed, and drops the file pages behind, so that
// source and packed copy never stand in memory together.
class Packer {
 public:
  Packer(const ModelSource& source, Backend& backend, const ProgressFn& progress,
         PackedCache* cache);

  Backend& backend() const { return backend_; }

  // Layer -1: everything outside of layers. What a cache has is not read from the source.
  void read_ahead(int layer) const;

  // read_share: how much of the matrix the step of one token reads.
  Result<std::unique_ptr<PackedWeight>> pack(PackRequest request, double read_share = 1);
  Result<std::unique_ptr<PackedWeight>> pack(const MatrixView& matrix,
                                             MatrixRole role = MatrixRole::kInner);
  // What comes now is no part of a token's step: the MTP head.
  void begin_mtp() { is_trunk_ = false; }
  // The model is complete: what was packed goes into `info`.
  void finish(ModelInfo& info);

 private:
  const ModelSource& source_;
  Backend& backend_;
  const ProgressFn& progress_;
  PackedCache* cache_;
  LoadProgress progress_state_;
  size_t packed_bytes_ = 0;
  double streamed_bytes_ = 0;
  bool is_trunk_ = true;
};

// Rows [first, first + count) as a matrix of their own, named after them.
MatrixView rows_of(const MatrixView& matrix, int64_t first, int64_t count);

// A copy of some rows of a matrix, in the order given. For small matrices: large ones are packed
// from rows_of(), which copies nothing but needs runs of rows.
class CopiedRows {
 public:
  CopiedRows(const MatrixView& matrix, std::span<const int64_t> rows);
  const MatrixView& view() const { return view_; }

 private:
  std::vector<uint8_t> data_, scales_, biases_;
  MatrixView view_;
};

}  // namespace invar
