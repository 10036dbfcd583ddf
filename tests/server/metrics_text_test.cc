// Prometheus' text format; the whole of /metrics is read by its own parser in tests/apps.
#include "server/metrics_text.h"

#include <gtest/gtest.h>

namespace invar::server {
namespace {

TEST(MetricsText, Values) {
  MetricsText text;
  text.add("a_total", MetricType::kCounter, "A \\ b.\nc", {{"model_name", "a\"b\\c\nd"}},
           {MetricSample(12345678901234.0), MetricSample(0.25, {{"kind", "x"}})});
  text.add("none", MetricType::kGauge, "Nothing.", {}, {});
  text.add("b", MetricType::kGauge, "B.", {}, {MetricSample(-1.0)});
  EXPECT_EQ(text.take(),
            "# HELP a_total A \\\\ b.\\nc\n"
            "# TYPE a_total counter\n"
            "a_total{model_name=\"a\\\"b\\\\c\\nd\"} 12345678901234\n"
            "a_total{model_name=\"a\\\"b\\\\c\\nd\",kind=\"x\"} 0.25\n"
            "# HELP b B.\n"
            "# TYPE b gauge\n"
            "b -1\n");
}

TEST(MetricsText, HistogramsAreCumulative) {
  HistogramData data;
  data.edges = {.001, .01, 2.5};
  data.counts = {1, 2, 0, 4};
  data.sum = 30.5;
  MetricsText text;
  text.add("h", MetricType::kHistogram, "H.", {}, {MetricSample(data, {{"k", "v"}})});
  text.add("i", MetricType::kHistogram, "I.", {}, {MetricSample(without_small_edges(data, .01))});
  EXPECT_EQ(text.take(),
            "# HELP h H.\n# TYPE h histogram\n"
            "h_bucket{k=\"v\",le=\"0.001\"} 1\nh_bucket{k=\"v\",le=\"0.01\"} 3\n"
            "h_bucket{k=\"v\",le=\"2.5\"} 3\nh_bucket{k=\"v\",le=\"+Inf\"} 7\n"
            "h_sum{k=\"v\"} 30.5\nh_count{k=\"v\"} 7\n"
            "# HELP i I.\n# TYPE i histogram\n"
            "i_bucket{le=\"0.01\"} 3\ni_bucket{le=\"2.5\"} 3\ni_bucket{le=\"+Inf\"} 7\n"
            "i_sum 30.5\ni_count 7\n");
}

}  // namespace
}  // namespace invar::server
