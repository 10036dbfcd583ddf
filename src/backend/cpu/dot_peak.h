// The arithmetic ceiling of an instruction set: its integer dot product on registers, nothing else.
// For benchmarks, which print kernels' speed as a share of it.
#pragma once

#include <cstdint>

#include "backend/cpu/isa.h"

namespace invar::cpu {

enum class Dot {
  kBytes,  // unsigned by signed bytes, as for 8-bit activations
  kWords,  // 16-bit values, as for 12-bit activations and for 8-bit codes on AVX2
};

// Does `rounds` rounds on the calling thread; returns the operations done, a multiplication and an
// addition being two. 0 where the set has no such instruction.
int64_t run_dots(Isa isa, Dot dot, int64_t rounds);

}  // namespace invar::cpu
