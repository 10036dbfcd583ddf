#include "start_report.h"

#include "base/log.h"

namespace invar::cli {

void report_start(const ModelDescription& model, std::chrono::duration<double> took) {
  log(LogLevel::kInfo, "ready in %.1f s: %s %s on %s (%s), %d threads, arithmetic %s, context %lld",
      took.count(), model.family.c_str(), model.quantization.c_str(), model.backend.c_str(),
      model.isa.c_str(), model.num_threads, model.arithmetic_id.c_str(),
      static_cast<long long>(model.context));
}

}  // namespace invar::cli
