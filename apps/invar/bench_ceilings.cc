// Ceilings of this machine, by backend/cpu/probe.h, and its name.
#include "bench_ceilings.h"

#include <fstream>

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

std::string cpu_name() {
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line);) {
    if (!line.starts_with("model name") && !line.starts_with("Model")) continue;
    const size_t at = line.find(": ");
    if (at != std::string::npos) return line.substr(at + 2);
  }
  return "unknown";
}

}  // namespace invar::cli
