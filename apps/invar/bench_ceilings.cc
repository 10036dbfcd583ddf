// Ceilings of this machine, by backend/cpu/probe.h.
#include "bench_ceilings.h"

#include "backend/cpu/probe.h"

namespace invar::cli {

Ceilings mean(const Ceilings& a, const Ceilings& b) {
  return {(a.read + b.read) / 2, (a.dots + b.dots) / 2};
}

CeilingProbe::CeilingProbe(const ModelDescription& model, Backend& backend) : backend_(backend) {
  if (model.backend != "cpu") return;
  const Result<cpu::IsaChoice> choice = cpu::choose_isa(model.isa);
  if (choice) isa_ = choice->isa;
  pool_ = std::make_unique<ThreadPool>(model.num_threads);
}

Ceilings CeilingProbe::measure() {
  if (pool_ == nullptr) {
    const DeviceRates rates = backend_.measure_rates();
    return {rates.read_bytes, rates.operations};
  }
  return {cpu::probe_read_bandwidth(*pool_), cpu::probe_byte_dots(*pool_, isa_)};
}

}  // namespace invar::cli
