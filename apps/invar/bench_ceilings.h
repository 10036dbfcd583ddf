// The machine's ceilings beside which `invar bench` puts its figures.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/isa.h"
#include "base/threads.h"
#include "invar/invar.h"

namespace invar::cli {

struct Ceilings {
  double read = 0;  // bytes a second, streaming from memory
  double dots = 0;  // operations a second of the instruction set's byte dot, or of wgmma
};
Ceilings mean(const Ceilings& a, const Ceilings& b);

// cpu: measures with as many threads as the engine has. Others: what the backend knows of its
// device, 0 where it knows nothing.
class CeilingProbe {
 public:
  CeilingProbe(const ModelDescription& model, Backend& backend);
  Ceilings measure();  // about 0.3 s

 private:
  cpu::Isa isa_ = cpu::Isa::kPortable;
  std::unique_ptr<ThreadPool> pool_;  // cpu
  Backend& backend_;
};

}  // namespace invar::cli
