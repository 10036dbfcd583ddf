// The ops of sparse mixtures of experts, as ops.h is for the others. Contracts: backend/moe_ops.h;
// the model saw to it at load that the backend has them.
#pragma once

#include "backend/moe_ops.h"
#include "ops/ops.h"

namespace invar::ops {

Tensor router(Context& ctx, Tensor x, const PackedWeight& w);
Tensor moe(Context& ctx, Tensor x, Tensor logits, const PackedWeight& up, const PackedWeight& down,
           const MoeArgs& args);
// residual += moe(...), in place
void moe_add_(Context& ctx, Tensor residual, Tensor x, Tensor logits, const PackedWeight& up,
              const PackedWeight& down, const MoeArgs& args);
// y += sigmoid(gate) * x, gate one column
void add_gated_(Context& ctx, Tensor y, Tensor x, Tensor gate);

}  // namespace invar::ops
