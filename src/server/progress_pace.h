// ProgressPace: how often a stream says how far its prompt is: each step, but at most ten times a
// second, and always at the end.
#pragma once

#include <chrono>

#include "invar/invar.h"

namespace invar::server {

class ProgressPace {
 public:
  bool is_due(const PromptProgress& progress, int64_t num_prompt_tokens) {
    const auto now = std::chrono::steady_clock::now();
    if (progress.num_computed_tokens < num_prompt_tokens && now < next_) return false;
    next_ = now + std::chrono::milliseconds(100);
    return true;
  }

 private:
  std::chrono::steady_clock::time_point next_ = {};
};

}  // namespace invar::server
