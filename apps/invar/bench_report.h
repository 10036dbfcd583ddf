// What `invar bench` prints: a table, CSV or JSON of results, and the comparison with another
// command's.
#pragma once

#include <string>
#include <vector>

#include "base/json.h"
#include "bench_against.h"
#include "bench_cases.h"

namespace invar::cli {

struct BenchReport {
  ModelDescription model;
  double load_ms = 0;
  int64_t peak_bytes = 0;
  bool kernels = false;
  std::vector<BenchResult> results;
  std::string against;             // the other command; empty: none
  std::vector<Comparison> ratios;  // by case, as in results
};

std::string report_table(const BenchReport& report);
std::string report_csv(const BenchReport& report);
Json report_json(const BenchReport& report);

}  // namespace invar::cli
