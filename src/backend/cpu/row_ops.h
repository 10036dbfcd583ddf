// Elementwise functions over a run of floats: activations, softcap. Same bits on every instruction
// set and for every position in the run; y may be one of the inputs.
#pragma once

#include <cstdint>

#include "backend/cpu/isa.h"

namespace invar::cpu {

struct RowOps {
  // y = x / (1 + exp(-x))
  void (*silu)(float* y, const float* x, int64_t count);
  // y = x * 0.5 * (1 + tanh(sqrt(2/pi) * (x + 0.044715 x^3)))
  void (*gelu_tanh)(float* y, const float* x, int64_t count);
  // y = silu(gate) * up, y = gelu_tanh(gate) * up
  void (*silu_mul)(float* y, const float* gate, const float* up, int64_t count);
  void (*gelu_tanh_mul)(float* y, const float* gate, const float* up, int64_t count);
  // y = cap * tanh(x / cap), cap > 0
  void (*softcap)(float* y, const float* x, int64_t count, float cap);
};

// The table of one instruction set, which must be available.
const RowOps& row_ops(Isa isa);

}  // namespace invar::cpu
