// RMS norm of rows and of heads (backend.h has the contracts). A row is one unit of work.
//   sum of x^2: 16 lane sums in ascending order (element i goes to lane i % 16, one fma each), then
//   the tree 8, 4, 2, 1;  r = 1 / sqrt(sum / n + eps);  y = (x * r) * weight [+ residual]
#pragma once

#include <span>

#include "backend/cpu/isa.h"
#include "base/threads.h"
#include "tensor/tensor.h"

namespace invar::cpu {

void rms_norm(ThreadPool& pool, Isa isa, Tensor y, Tensor x, std::span<const float> weight,
              float eps, Tensor residual);
void head_rms_norm(ThreadPool& pool, Isa isa, Tensor x, int head_dim, std::span<const float> weight,
                   float eps);

}  // namespace invar::cpu
