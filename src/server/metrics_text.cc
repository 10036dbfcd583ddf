#include "server/metrics_text.h"

#include <cstdint>

#include "base/result.h"

namespace invar::server {
namespace {

void add_escaped(std::string& out, std::string_view text, bool is_label) {
  for (const char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\n')
      out += "\\n";
    else if (c == '"' && is_label)
      out += "\\\"";
    else
      out += c;
  }
}

std::string number(double value) {
  // Counts stay whole, however large.
  if (value == static_cast<double>(static_cast<int64_t>(value)))
    return format("%lld", static_cast<long long>(value));
  return format("%.12g", value);
}

const char* type_name(MetricType type) {
  switch (type) {
    case MetricType::kCounter:
      return "counter";
    case MetricType::kGauge:
      return "gauge";
    case MetricType::kHistogram:
      return "histogram";
  }
  return "untyped";
}

}  // namespace

void MetricsText::add(const std::string& name, MetricType type, std::string_view help,
                      const MetricLabels& common, const std::vector<MetricSample>& samples) {
  if (samples.empty()) return;
  text_ += "# HELP " + name + " ";
  add_escaped(text_, help, false);
  text_ += "\n# TYPE " + name + " " + type_name(type) + "\n";
  for (const MetricSample& sample : samples) {
    if (type == MetricType::kHistogram)
      add_histogram(name, common, sample);
    else
      add_value(name, common, sample.labels, sample.value);
  }
}

void MetricsText::add_value(const std::string& name, const MetricLabels& common,
                            const MetricLabels& more, double value) {
  text_ += name;
  char before = '{';
  for (const MetricLabels* labels : {&common, &more})
    for (const auto& [label, text] : *labels) {
      text_ += before;
      text_ += label + "=\"";
      add_escaped(text_, text, true);
      text_ += '"';
      before = ',';
    }
  if (before == ',') text_ += '}';
  text_ += ' ' + number(value) + '\n';
}

void MetricsText::add_histogram(const std::string& name, const MetricLabels& common,
                                const MetricSample& sample) {
  const HistogramData& data = sample.histogram;
  int64_t total = 0;
  for (size_t i = 0; i < data.counts.size(); ++i) {
    total += data.counts[i];
    MetricLabels labels = sample.labels;
    labels.emplace_back("le", i < data.edges.size() ? format("%.12g", data.edges[i]) : "+Inf");
    add_value(name + "_bucket", common, labels, static_cast<double>(total));
  }
  add_value(name + "_sum", common, sample.labels, data.sum);
  add_value(name + "_count", common, sample.labels, static_cast<double>(total));
}

HistogramData without_small_edges(HistogramData data, double smallest) {
  while (!data.edges.empty() && data.edges.front() < smallest) {
    data.counts[1] += data.counts[0];
    data.counts.erase(data.counts.begin());
    data.edges.erase(data.edges.begin());
  }
  return data;
}

}  // namespace invar::server
