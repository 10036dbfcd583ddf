// Histogram: counts of observations by size, added to and read by any number of threads without a
// lock.
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "invar/stats.h"

namespace invar {

class Histogram {
 public:
  // `edges` ascending; what is above the last one is counted too.
  explicit Histogram(std::vector<double> edges);

  void observe(double value);
  HistogramData data() const;

 private:
  const std::vector<double> edges_;
  const std::unique_ptr<std::atomic<int64_t>[]> counts_;
  std::atomic<double> sum_ = 0;
};

// 1, 2, 5, 10, 20, 50, ... up to `limit`.
std::vector<double> count_edges(int64_t limit);

}  // namespace invar
