#include "models/packer.h"

#include <cmath>
#include <string>
#include <utility>

#include "base/check.h"
#include "base/prefetch.h"

namespace invar {

Packer::Packer(const ModelSource& source, Backend& backend, const ProgressFn& progress,
               PackedCache* cache)
    : source_(source), backend_(backend), progress_(progress), cache_(cache) {
  for (const TensorInfo& tensor : source.checkpoint().tensors())
    if (source.is_wanted(tensor.name)) progress_state_.bytes_total += tensor.matrix.num_bytes();
}

void Packer::read_ahead(int layer) const {
  if (cache_ != nullptr && cache_->is_filled()) return;
  for (const TensorInfo& tensor : source_.checkpoint().tensors()) {
    if (ModelSource::layer_of(tensor.name) != layer || !source_.is_wanted(tensor.name)) continue;
    const MatrixView& m = tensor.matrix;
    prefetch_pages(m.data, static_cast<size_t>(m.num_rows * m.row_bytes));
  }
}

Result<std::unique_ptr<PackedWeight>> Packer::pack(PackRequest request, double read_share) {
  request.cache = cache_;
  INVAR_TRY(auto packed, backend_.pack(request));
  packed_bytes_ += packed->num_bytes;
  if (is_trunk_) streamed_bytes_ += read_share * static_cast<double>(packed->num_bytes);
  for (const MatrixView& part : request.parts) {
    source_.checkpoint().drop_pages(part);
    progress_state_.bytes_done += part.num_bytes();
  }
  if (progress_) progress_(progress_state_);
  return packed;
}

Result<std::unique_ptr<PackedWeight>> Packer::pack(const MatrixView& matrix, MatrixRole role) {
  return pack(PackRequest{{matrix}, PartOrder::kStacked, role});
}

void Packer::finish(ModelInfo& info) {
  info.packed_bytes = packed_bytes_;
  info.streamed_bytes_per_token = std::llround(streamed_bytes_);
  progress_state_.bytes_done = progress_state_.bytes_total;
  if (progress_) progress_(progress_state_);
}

MatrixView rows_of(const MatrixView& matrix, int64_t first, int64_t count) {
  INVAR_CHECK(first >= 0 && count >= 0 && first + count <= matrix.num_rows, "rows %ld+%ld of %ld",
              long{first}, long{count}, long{matrix.num_rows});
  INVAR_CHECK(matrix.interleaved_head_dim == 0, "rows of interleaved heads");
  MatrixView part = matrix;
  part.name += " rows " + std::to_string(first) + "+" + std::to_string(count);
  part.num_rows = count;
  part.data += first * matrix.row_bytes;
  if (matrix.format == WeightFormat::kMlxAffine) {
    const int64_t scale_bytes =
        matrix.num_cols / matrix.group_size * static_cast<int64_t>(dtype_bytes(matrix.scale_dtype));
    part.scales += first * scale_bytes;
    part.biases += first * scale_bytes;
  }
  return part;
}

CopiedRows::CopiedRows(const MatrixView& matrix, std::span<const int64_t> rows) : view_(matrix) {
  const auto take = [](std::vector<uint8_t>& to, const MatrixView& row, const uint8_t* from) {
    const int64_t size = from == row.data ? row.row_bytes
                                          : row.num_cols / row.group_size *
                                                static_cast<int64_t>(dtype_bytes(row.scale_dtype));
    to.insert(to.end(), from, from + size);
  };
  for (const int64_t r : rows) {
    const MatrixView row = rows_of(matrix, r, 1);
    take(data_, row, row.data);
    if (matrix.format != WeightFormat::kMlxAffine) continue;
    take(scales_, row, row.scales);
    take(biases_, row, row.biases);
  }
  view_.num_rows = static_cast<int64_t>(rows.size());
  view_.data = data_.data();
  if (matrix.format == WeightFormat::kMlxAffine) {
    view_.scales = scales_.data();
    view_.biases = biases_.data();
  }
  view_.name += " in another order";
}

}  // namespace invar
