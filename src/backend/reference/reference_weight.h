// A weight of the reference backend: its parts as they stand in the file, copied so that the
// checkpoint may be closed. Shared by the ops that meet weights.
#pragma once

#include <cmath>
#include <vector>

#include "backend/backend.h"
#include "base/check.h"

namespace invar {

class ReferenceWeight : public PackedWeight {
 public:
  struct Part {
    MatrixView view;
    std::vector<uint8_t> data, scales, biases;
  };
  std::vector<Part> parts;  // expert-major
  PartOrder order = PartOrder::kStacked;

  // Row r of one expert's stacked parts (gate, then up) as fp32. A dense weight is expert 0.
  void row(int64_t r, float* out, int expert = 0) const {
    const size_t per_expert = parts.size() / static_cast<size_t>(num_experts);
    for (size_t i = 0; i < per_expert; ++i) {
      const Part& part = parts[static_cast<size_t>(expert) * per_expert + i];
      if (r < part.view.num_rows) return dequantize_row(part.view, r, out);
      r -= part.view.num_rows;
    }
    INVAR_CHECK(false, "row beyond the matrix");
  }
};

Result<std::unique_ptr<PackedWeight>> copy_weight(const PackRequest& request);

inline double activate(double x, Activation activation) {
  switch (activation) {
    case Activation::kSilu:
      return x / (1.0 + std::exp(-x));
    case Activation::kRelu2:
      return x > 0 ? x * x : x * 0.0;  // NaN stays
    case Activation::kGeluTanh:
      break;
  }
  const double root = std::sqrt(2.0 / 3.14159265358979323846);
  return 0.5 * x * (1.0 + std::tanh(root * (x + 0.044715 * x * x * x)));
}

}  // namespace invar
