// Linear, gated linear and head: rows are quantized once a call, then the pool's threads meet them
// with panels (linear_phase.cc).
#include "backend/cpu/linear.h"

#include <algorithm>

#include "backend/cpu/linear_phase.h"
#include "backend/cpu/row_ops.h"

namespace invar::cpu {
namespace {

// `phase` has the weight and what happens to its outputs.
void run_dense(ThreadPool& pool, LinearPhase phase, Activations& a, Tensor x,
               std::span<const KernelCrossover> crossovers) {
  const PackedPanels& w = phase.w;
  INVAR_CHECK(w.num_experts == 1, "experts go to moe");
  if (x.num_rows == 0) return;
  const Job job{Tiles(x.num_rows, phase.kernels.max_rows), 0, 0, w.num_units};
  const Forms forms = forms_read(phase.kernels, w, w.segments);
  a.x = x;
  a.make_room(forms, job.tiles.count, x.num_cols);
  quantize(pool, phase.kernels, w.activation_bits, forms, {&job, 1}, a);
  phase.unpack_from = unpack_from(phase.kernels, crossovers, w);
  run_phase(pool, phase, {&job, 1});
}

Activations& activations() {
  thread_local Activations a;
  return a;
}

}  // namespace

void linear(ThreadPool& pool, Isa isa, Tensor y, Tensor x, const PackedWeight& weight,
            std::span<const float> bias, Tensor residual,
            std::span<const KernelCrossover> crossovers) {
  const PackedPanels& w = panels_of(weight);
  INVAR_CHECK(w.order == PartOrder::kStacked, "gate and up go to gated_linear");
  LinearPhase phase{linear_kernels(isa), w, activations(), y};
  phase.bias = bias;
  phase.residual = residual;
  run_dense(pool, phase, activations(), x, crossovers);
}

void gated_linear(ThreadPool& pool, Isa isa, Tensor y, Tensor x, const PackedWeight& weight,
                  Activation activation, std::span<const KernelCrossover> crossovers) {
  const PackedPanels& w = panels_of(weight);
  INVAR_CHECK(w.order == PartOrder::kGateAndUp, "gated_linear takes gate and up");
  const RowOps& ops = row_ops(isa);
  LinearPhase phase{linear_kernels(isa), w, activations(), y};
  phase.combine = activation == Activation::kSilu ? ops.silu_mul : ops.gelu_tanh_mul;
  run_dense(pool, phase, activations(), x, crossovers);
}

void lm_head(ThreadPool& pool, Isa isa, Tensor logits, Tensor x, const PackedWeight& w,
             float softcap, std::span<const KernelCrossover> crossovers) {
  linear(pool, isa, logits, x, w, {}, Tensor{}, crossovers);
  if (softcap <= 0) return;
  const RowOps& ops = row_ops(isa);
  constexpr int64_t kRun = 4096;
  const int64_t runs = (logits.num_cols + kRun - 1) / kRun;
  pool.run(logits.num_rows * runs, [&](int64_t begin, int64_t end, int) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t col = i % runs * kRun;
      float* values = logits.row(i / runs) + col;
      ops.softcap(values, values, std::min(kRun, logits.num_cols - col), softcap);
    }
  });
}

}  // namespace invar::cpu
