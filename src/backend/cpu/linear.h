// Matrix times rows on the CPU: packing into panels, linear, gated linear, head and embedding
// lookup. The arithmetic is "cpu-1" (docs/numerics.md): the output (row, column) depends on that
// row of x and that row of the weight only, whatever runs beside it, on any instruction set and
// thread count. Panels are laid out in panels.h; the kernels of each instruction set stand behind
// linear_kernels.h.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "backend/cpu/pack_memory.h"
#include "backend/tunable.h"
#include "base/threads.h"

namespace invar::cpu {

struct LinearOptions {
  int activation_bits = 8;  // 8 or 12, for inner matrices; a head always takes 12
  std::shared_ptr<PanelArena> arena = std::make_shared<PanelArena>();
};

// Errors: kUnsupported for a format or shape that the panels cannot hold, kResourceExhausted.
Result<std::unique_ptr<PackedWeight>> pack_panels(const PackRequest& request, ThreadPool& pool,
                                                  const LinearOptions& options);

// The contracts of Backend's methods of the same name. A row of x with an inf or a NaN gives NaN in
// that row of y and nowhere else. `crossovers`: from how many rows on panels are unpacked; a weight
// that is not named has its kernels' own number.
void linear(ThreadPool& pool, Isa isa, Tensor y, Tensor x, const PackedWeight& w,
            std::span<const float> bias, Tensor residual,
            std::span<const KernelCrossover> crossovers = {});
void gated_linear(ThreadPool& pool, Isa isa, Tensor y, Tensor x, const PackedWeight& w,
                  Activation activation, std::span<const KernelCrossover> crossovers = {});
void lm_head(ThreadPool& pool, Isa isa, Tensor logits, Tensor x, const PackedWeight& w,
             float softcap, std::span<const KernelCrossover> crossovers = {});
void embed(ThreadPool& pool, Isa isa, Tensor y, std::span<const int32_t> ids,
           const PackedWeight& table, float scale);

}  // namespace invar::cpu
