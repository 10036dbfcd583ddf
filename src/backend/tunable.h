// What some backends can be told about this machine. A backend that has a choice of kernels is a
// Tunable as well; others are not, and nobody needs to ask.
#pragma once

#include <cstdint>
#include <span>

namespace invar {

// From how many rows on a matrix of this shape is met by the kernel that is made for many. Speed
// only: both kernels compute the same bits.
struct KernelCrossover {
  bool gated = false;                  // gated_linear's
  int64_t num_rows = 0, num_cols = 0;  // PackedWeight's
  int min_rows = 0;
  bool operator==(const KernelCrossover&) const = default;
};

class Tunable {
 public:
  virtual ~Tunable() = default;
  // Between steps. Shapes that are not named have the backend's own crossover.
  virtual void set_crossovers(std::span<const KernelCrossover> crossovers) = 0;
};

}  // namespace invar
