// A line chart as SVG text. Knows nothing of what it draws.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace invar::cli {

struct ChartLine {
  std::string name;
  std::vector<std::pair<double, double>> points;  // ascending x
  bool dashed = false;
};

// Both axes begin at zero.
struct Chart {
  std::string title, x_label, y_label;
  std::vector<ChartLine> lines;  // at most eight
};

// Charts side by side under one heading.
std::string svg_charts(const std::string& heading, const std::string& subheading,
                       const std::vector<Chart>& charts);

}  // namespace invar::cli
