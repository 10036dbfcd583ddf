// Rows to threads for RMS norm; the arithmetic is rms_norm_inl.h.
#include "backend/cpu/rms_norm.h"

#include "backend/cpu/row_phase.h"
#include "backend/cpu/simd_kernels.h"

namespace invar::cpu {

void rms_norm(ThreadPool& pool, Isa isa, Tensor y, Tensor x, std::span<const float> weight,
              float eps, Tensor residual) {
  const auto kernel = simd_kernels(isa).rms_norm;
  for_rows(pool, x.num_rows, x.num_cols, [&](int64_t t) {
    kernel(y.row(t), x.row(t), weight.data(), residual.data != nullptr ? residual.row(t) : nullptr,
           x.num_cols, eps);
  });
}

void head_rms_norm(ThreadPool& pool, Isa isa, Tensor x, int head_dim, std::span<const float> weight,
                   float eps) {
  const auto kernel = simd_kernels(isa).rms_norm;
  for_rows(pool, x.num_rows, x.num_cols, [&](int64_t t) {
    float* row = x.row(t);
    for (int64_t i = 0; i + head_dim <= x.num_cols; i += head_dim)
      kernel(row + i, row + i, weight.data(), nullptr, head_dim, eps);
  });
}

}  // namespace invar::cpu
