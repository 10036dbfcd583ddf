#include "base/histogram.h"

#include <algorithm>

namespace invar {

Histogram::Histogram(std::vector<double> edges)
    : edges_(std::move(edges)), counts_(new std::atomic<int64_t>[edges_.size() + 1]()) {}

void Histogram::observe(double value) {
  const auto edge = std::lower_bound(edges_.begin(), edges_.end(), value);
  counts_[static_cast<size_t>(edge - edges_.begin())].fetch_add(1, std::memory_order_relaxed);
  sum_.fetch_add(value, std::memory_order_relaxed);
}

HistogramData Histogram::data() const {
  HistogramData data;
  data.edges = edges_;
  for (size_t i = 0; i <= edges_.size(); ++i)
    data.counts.push_back(counts_[i].load(std::memory_order_relaxed));
  data.sum = sum_.load(std::memory_order_relaxed);
  return data;
}

std::vector<double> count_edges(int64_t limit) {
  std::vector<double> edges;
  for (int64_t power = 1; power <= limit; power *= 10)
    for (const int64_t factor : {1, 2, 5})
      if (power * factor <= limit) edges.push_back(static_cast<double>(power * factor));
  return edges;
}

}  // namespace invar
