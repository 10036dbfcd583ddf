// The machine's ceilings beside which `invar bench` puts its figures.
#pragma once

#include <memory>
#include <string>

#include "backend/cpu/isa.h"
#include "base/threads.h"
#include "invar/invar.h"

namespace invar::cli {

struct Ceilings {
  double read = 0;  // bytes a second, streaming from memory
  double dots = 0;  // integer operations a second of the instruction set's byte dot
};
Ceilings mean(const Ceilings& a, const Ceilings& b);

// Measures with as many threads as the engine has. Backends other than cpu have no ceilings (0).
class CeilingProbe {
 public:
  explicit CeilingProbe(const ModelDescription& model);
  Ceilings measure();  // about 0.3 s

 private:
  cpu::Isa isa_ = cpu::Isa::kPortable;
  std::unique_ptr<ThreadPool> pool_;  // null: no ceilings
};

std::string cpu_name();  // "AMD EPYC 7763", as the kernel knows it

}  // namespace invar::cli
