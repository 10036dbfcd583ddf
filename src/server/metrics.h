// GET /metrics: what runs and what has happened, for Prometheus (specs/api.md section 15). One
// table (metrics.cc) gives each value its own name and those of vLLM and llama.cpp, whose
// dashboards and autoscalers then work as they are. Read from counters: no lock that a step holds,
// well below a millisecond.
#pragma once

#include <atomic>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "server/http/http_server.h"
#include "server/model_routes.h"
#include "server/request_registry.h"

namespace invar::server {

struct MetricsOptions {
  bool vllm = true, llamacpp = true;  // other servers' names beside our own
  bool vllm_old = false;              // vllm:gpu_cache_usage_perc, which newer vLLM dropped
  bool open = false;                  // answers without a key
};

class Metrics {
 public:
  // What it reads outlives it.
  Metrics(const MetricsOptions& options, const ServedModel& model, const RequestRegistry& requests,
          const Lifecycle& lifecycle);

  // From any thread: one finished HTTP request.
  void count_request(const RequestRecord& record);
  void count_stall() { ++num_stalls_; }
  // Once, when they are known.
  void set_server(const HttpServer* server) { server_ = server; }
  void set_load_seconds(double seconds) { load_seconds_ = seconds; }

  std::string scrape() const;
  const MetricsOptions& options() const { return options_; }

 private:
  friend struct MetricsSnapshot;

  const MetricsOptions options_;
  const ServedModel& model_;
  const RequestRegistry& requests_;
  const Lifecycle& lifecycle_;
  const std::time_t started_;
  std::atomic<const HttpServer*> server_ = nullptr;
  std::atomic<double> load_seconds_ = -1;  // < 0: still loading
  std::atomic<int64_t> num_stalls_ = 0;

  mutable std::mutex mutex_;  // held for a moment by whoever counts or reads
  std::map<std::pair<std::string, int>, int64_t> requests_by_route_;  // and status
  std::map<std::string, int64_t> rejects_by_code_;
};

// `metrics` outlives the router.
void add_metrics_route(Router& router, const Metrics& metrics);

}  // namespace invar::server
