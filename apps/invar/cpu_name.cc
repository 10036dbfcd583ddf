#include "cpu_name.h"

#include <fstream>

namespace invar::cli {

std::string cpu_name() {
  // x86 has the first, ARM one of the others: a board's name, or a number of the core.
  constexpr const char* kKeys[] = {"model name", "Model", "CPU part"};
  std::string best;
  size_t best_key = std::size(kKeys);
  std::ifstream cpuinfo("/proc/cpuinfo");
  for (std::string line; std::getline(cpuinfo, line) && best_key > 0;) {
    const size_t at = line.find(": ");
    if (at == std::string::npos) continue;
    for (size_t key = 0; key < best_key; ++key) {
      if (!line.starts_with(kKeys[key])) continue;
      best = line.substr(at + 2);
      best_key = key;
    }
  }
  return best.empty() ? "unknown" : best;
}

}  // namespace invar::cli
