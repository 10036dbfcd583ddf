// Lifecycle: whether the server loads, serves, drains or has lost its device, and the answers of
// the probe routes. All atomics: a probe never waits for a lock that a step holds.
#pragma once

#include <atomic>
#include <optional>

#include "server/http/http_types.h"

namespace invar::server {

class Router;

class Lifecycle {
 public:
  // While loading. `phase` is a literal ("reading", "packing", "warm-up"); progress never falls.
  void set_loading(const char* phase, double progress);
  void set_ready() { ready_ = true; }
  void set_draining() { draining_ = true; }
  void set_device_lost() { device_lost_ = true; }
  void set_stuck(bool stuck) { stuck_ = stuck; }

  bool draining() const { return draining_; }
  double progress() const { return ready_ ? 1 : progress_.load(); }  // of loading

  // Why a request that needs the engine is refused now, if it is.
  std::optional<ApiError> refusal() const;

  Response readiness() const;  // 200 or 503
  Response liveness() const;   // 200 or 500

 private:
  std::atomic<bool> ready_ = false, draining_ = false, device_lost_ = false, stuck_ = false;
  std::atomic<const char*> phase_ = "starting";
  std::atomic<double> progress_ = 0;
};

// /health, /ready, /livez and their other names. `lifecycle` must outlive the server.
void add_probe_routes(Router& router, const Lifecycle& lifecycle);

}  // namespace invar::server
