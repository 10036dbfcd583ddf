// Copies of a checkpoint's matrices.
#include "backend/reference/reference_weight.h"

namespace invar {

Result<std::unique_ptr<PackedWeight>> copy_weight(const PackRequest& request) {
  if (request.num_experts < 1 || request.parts.empty() ||
      request.parts.size() % static_cast<size_t>(request.num_experts) != 0)
    return invalid_argument("%zu matrices for %d experts", request.parts.size(),
                            request.num_experts);
  auto weight = std::make_unique<ReferenceWeight>();
  const auto copy = [](const uint8_t* from, size_t size) {
    return from == nullptr ? std::vector<uint8_t>() : std::vector<uint8_t>(from, from + size);
  };
  for (const MatrixView& view : request.parts) {
    ReferenceWeight::Part part{
        view, copy(view.data, static_cast<size_t>(view.num_rows * view.row_bytes)), {}, {}};
    part.view.data = part.data.data();
    if (view.format == WeightFormat::kMlxAffine) {
      const size_t size = static_cast<size_t>(view.num_rows * (view.num_cols / view.group_size)) *
                          dtype_bytes(view.scale_dtype);
      part.scales = copy(view.scales, size);
      part.biases = copy(view.biases, size);
      part.view.scales = part.scales.data();
      part.view.biases = part.biases.data();
    }
    weight->num_rows += view.num_rows;
    weight->num_cols = view.num_cols;
    weight->num_bytes += part.data.size() + part.scales.size() + part.biases.size();
    weight->parts.push_back(std::move(part));
  }
  weight->order = request.order;
  weight->num_experts = request.num_experts;
  weight->num_rows /= request.num_experts;
  if (request.order == PartOrder::kGateAndUp) weight->num_rows /= 2;
  return std::unique_ptr<PackedWeight>(std::move(weight));
}

}  // namespace invar
