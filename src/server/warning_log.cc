#include "server/warning_log.h"

#include "base/log.h"

namespace invar::server {
namespace {

constexpr size_t kMaxNames = 256;  // clients can invent fields without end

}  // namespace

int WarningLog::note(const std::vector<Warning>& warnings) {
  int num_lines = 0;
  for (const Warning& warning : warnings) {
    const std::string name = quote_value(warning.param);
    {
      const std::lock_guard lock(mutex_);
      const bool is_unknown = warning.code == "ignored_field";
      if (is_unknown && num_names_ >= kMaxNames) continue;
      if (!seen_.insert(is_unknown ? warning.code + " " + name : warning.code).second) continue;
      if (is_unknown) ++num_names_;
    }
    log(LogLevel::kWarning, "a request was warned: %s%s%s; more of these are not logged",
        warning.code.c_str(), warning.param.empty() ? "" : " of ",
        warning.param.empty() ? "" : name.c_str());
    ++num_lines;
  }
  return num_lines;
}

}  // namespace invar::server
