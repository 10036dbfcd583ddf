// MetricsText: families of metrics as Prometheus' text format 0.0.4. Knows the format and no
// metric.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "invar/stats.h"

namespace invar::server {

using MetricLabels = std::vector<std::pair<std::string, std::string>>;

// One value, or one histogram.
struct MetricSample {
  MetricSample(double number, MetricLabels more = {}) : labels(std::move(more)), value(number) {}
  MetricSample(HistogramData data, MetricLabels more = {})
      : labels(std::move(more)), histogram(std::move(data)) {}
  MetricLabels labels;  // beside those of all samples
  double value = 0;
  HistogramData histogram;
};

enum class MetricType { kCounter, kGauge, kHistogram };

class MetricsText {
 public:
  // Every sample of a family gets `common`. A family without samples is left out.
  void add(const std::string& name, MetricType type, std::string_view help,
           const MetricLabels& common, const std::vector<MetricSample>& samples);
  std::string take() { return std::move(text_); }

 private:
  void add_value(const std::string& name, const MetricLabels& common, const MetricLabels& more,
                 double value);
  void add_histogram(const std::string& name, const MetricLabels& common,
                     const MetricSample& sample);
  std::string text_;
};

// The histogram without the edges below `smallest`: their counts go into the one above.
HistogramData without_small_edges(HistogramData data, double smallest);

}  // namespace invar::server
