// WarningLog: the warnings that requests get (`invar.warnings`), for the operator: a log line for
// the first of each kind, so that a client that sends one a thousand times says it once.
#pragma once

#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "server/fields.h"

namespace invar::server {

class WarningLog {
 public:
  // A kind is a code, of unknown fields each name. Values, which are the user's, are not logged.
  // How many lines were written.
  int note(const std::vector<Warning>& warnings);

 private:
  std::mutex mutex_;
  std::set<std::string> seen_;
  size_t num_names_ = 0;  // of unknown fields
};

}  // namespace invar::server
