// The ops of layers with a state, as ops.h is for the others. Contracts: backend/recurrent_ops.h;
// the model saw to it at load that the backend has them.
#pragma once

#include "backend/recurrent_ops.h"
#include "ops/ops.h"

namespace invar::ops {

Tensor short_conv(Context& ctx, Tensor x, FloatSpan weight, FloatSpan bias,
                  std::span<const Window> windows, int layer);
Tensor gated_delta(Context& ctx, Tensor q, Tensor k, Tensor v, Tensor a, Tensor b,
                   std::span<const Window> windows, const GatedDeltaArgs& args);
Tensor ssd(Context& ctx, Tensor x, Tensor b, Tensor c, Tensor dt, std::span<const Window> windows,
           const SsdArgs& args);
Tensor gated_norm(Context& ctx, Tensor x, Tensor z, FloatSpan weight, const GatedNormArgs& args);
void sigmoid_gate_(Context& ctx, Tensor x, Tensor gate);
void relu2_(Context& ctx, Tensor x);

}  // namespace invar::ops
