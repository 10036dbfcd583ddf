#include "stall.h"

#include <unistd.h>

#include <chrono>
#include <thread>

#include "base/log.h"
#include "base/stacks.h"
#include "exit_codes.h"
#include "fatal.h"

namespace invar::cli {
namespace {

// Probes and scrapes may still see why it ends.
constexpr std::chrono::seconds kLastWords{2};

}  // namespace

std::unique_ptr<server::Watchdog> watch_for_stall(const Engine& engine, int64_t seconds,
                                                  server::Lifecycle& lifecycle,
                                                  server::Metrics& metrics,
                                                  const std::string& termination_log) {
  if (seconds == 0) return nullptr;
  const auto on_stall = [&lifecycle, &metrics, termination_log, seconds] {
    lifecycle.set_stuck(true);
    metrics.count_stall();
    const std::string cause = format(
        "the engine has stood still for %lld s although there is work; please report the stacks "
        "in the log",
        static_cast<long long>(seconds));
    log(LogLevel::kError, "%s", cause.c_str());
    write_all_stacks(STDERR_FILENO);
    std::this_thread::sleep_for(kLastWords);
    ::_exit(fatal(termination_log, cause, kExitStuck));
  };
  return std::make_unique<server::Watchdog>(engine, std::chrono::seconds(seconds), on_stall);
}

}  // namespace invar::cli
