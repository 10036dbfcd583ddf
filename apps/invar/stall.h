// What `invar serve` does with an engine that stands still: it says so to probes, writes the stacks
// of all threads to the log and ends, so that a supervisor starts it again.
#pragma once

#include <memory>
#include <string>

#include "server/http/lifecycle.h"
#include "server/metrics.h"
#include "server/watchdog.h"

namespace invar::cli {

// Watches until it is destroyed. All it refers to outlives it.
std::unique_ptr<server::Watchdog> watch_for_stall(const Engine& engine, int64_t seconds,
                                                  server::Lifecycle& lifecycle,
                                                  server::Metrics& metrics,
                                                  const std::string& termination_log);

}  // namespace invar::cli
