// Instruction sets the cpu kernels are built for; which one runs is chosen once, at start.
#pragma once

namespace invar::cpu {

enum class Isa { kPortable, kAvx2, kAvx512 };

}  // namespace invar::cpu
