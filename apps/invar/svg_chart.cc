#include "svg_chart.h"

#include <algorithm>
#include <cmath>

#include "base/result.h"

namespace invar::cli {
namespace {

constexpr double kWidth = 560, kHeight = 400;  // of a chart with its margins
constexpr double kLeft = 70, kRight = 24, kTop = 44, kBottom = 52;
constexpr double kHead = 64;
// Told apart by colour-blind eyes (Okabe and Ito's), dark ones first.
constexpr const char* kColours[] = {"#0072b2", "#d55e00", "#009e73", "#cc79a7",
                                    "#56b4e9", "#e69f00", "#666666", "#000000"};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

std::string text(double x, double y, const char* attributes, const std::string& content) {
  return format("<text x=\"%.1f\" y=\"%.1f\" %s>", x, y, attributes) + escaped(content) +
         "</text>\n";
}

// 1, 2 or 5 times a power of ten, so that about `count` of them reach `largest`.
double tick_size(double largest, int count) {
  const double raw = largest / count;
  const double power = std::pow(10, std::floor(std::log10(raw)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= raw) return factor * power;
  return 10 * power;
}

std::string number(double value) {
  std::string out = format("%.6g", value);
  return out;
}

std::string svg_chart(const Chart& chart, double left, double top) {
  double most_x = 1e-9, most_y = 1e-9;
  for (const ChartLine& line : chart.lines)
    for (const auto& [x, y] : line.points) {
      most_x = std::max(most_x, x);
      most_y = std::max(most_y, y);
    }
  const double tick_x = tick_size(most_x, 8), tick_y = tick_size(most_y, 6);
  most_y = std::ceil(most_y / tick_y) * tick_y;
  const double x0 = left + kLeft, x1 = left + kWidth - kRight;
  const double y0 = top + kHeight - kBottom, y1 = top + kTop;
  const auto at_x = [&](double x) { return x0 + (x1 - x0) * x / most_x; };
  const auto at_y = [&](double y) { return y0 - (y0 - y1) * y / most_y; };

  std::string out = text(left + kLeft, top + 24, "class=\"title\"", chart.title);
  for (double y = 0; y <= most_y * 1.0001; y += tick_y) {
    out += format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n", x0,
                  at_y(y), x1, at_y(y));
    out += text(x0 - 8, at_y(y) + 4, "class=\"tick\" text-anchor=\"end\"", number(y));
  }
  for (double x = 0; x <= most_x * 1.0001; x += tick_x)
    out += text(at_x(x), y0 + 18, "class=\"tick\" text-anchor=\"middle\"", number(x));
  out += format("<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" class=\"axis\"/>\n", x0, y0,
                x1, y0);
  out += text((x0 + x1) / 2, y0 + 40, "class=\"label\" text-anchor=\"middle\"", chart.x_label);
  const double middle = (y0 + y1) / 2;
  out += text(left + 16, middle,
              format("class=\"label\" text-anchor=\"middle\" transform=\"rotate(-90 %.1f %.1f)\"",
                     left + 16, middle)
                  .c_str(),
              chart.y_label);
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const ChartLine& line = chart.lines[i];
    const char* colour = kColours[i % std::size(kColours)];
    std::string points;
    for (const auto& [x, y] : line.points) {
      points += format("%.1f,%.1f ", at_x(x), at_y(y));
      // What was measured; between the marks nothing was.
      out += format("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>\n", at_x(x), at_y(y),
                    colour);
    }
    const char* dash = line.dashed ? " stroke-dasharray=\"6 4\"" : "";
    out += format("<polyline points=\"%s\" fill=\"none\" stroke=\"%s\" stroke-width=\"2\"%s/>\n",
                  points.c_str(), colour, dash);
  }
  return out;
}

// Below the chart, so that no line runs through it.
std::string svg_legend(const Chart& chart, double left, double top) {
  std::string out;
  for (size_t i = 0; i < chart.lines.size(); ++i) {
    const double x = left + kLeft + static_cast<double>(i % 2) * 240;
    const double y = top + 12 + static_cast<double>(i / 2) * 20;
    out += format(
        "<line x1=\"%.1f\" y1=\"%.1f\" x2=\"%.1f\" y2=\"%.1f\" stroke=\"%s\" stroke-width=\"3\"%s/>"
        "\n",
        x, y - 4, x + 22, y - 4, kColours[i % std::size(kColours)],
        chart.lines[i].dashed ? " stroke-dasharray=\"6 4\"" : "");
    out += text(x + 30, y, "class=\"tick\"", chart.lines[i].name);
  }
  return out;
}

}  // namespace

std::string svg_charts(const std::string& heading, const std::string& subheading,
                       const std::vector<Chart>& charts) {
  size_t most_lines = 0;
  for (const Chart& chart : charts) most_lines = std::max(most_lines, chart.lines.size());
  const double legend = static_cast<double>((most_lines + 1) / 2) * 20 + 20;
  const double width = kWidth * static_cast<double>(charts.size());
  const double height = kHead + kHeight + legend;
  std::string out = format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" viewBox=\"0 0 %.0f "
      "%.0f\">\n"
      "<style>text{font-family:system-ui,sans-serif;fill:#222}.head{font-size:18px;font-weight:600}"
      ".sub,.tick{font-size:12px}.tick{fill:#444}.title{font-size:14px;font-weight:600}"
      ".label{font-size:13px}.grid{stroke:#ddd}.axis{stroke:#444}</style>\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n",
      width, height, width, height);
  out += text(24, 30, "class=\"head\"", heading) + text(24, 52, "class=\"sub\"", subheading);
  for (size_t i = 0; i < charts.size(); ++i) {
    const double left = kWidth * static_cast<double>(i);
    out += svg_chart(charts[i], left, kHead) + svg_legend(charts[i], left, kHead + kHeight);
  }
  return out + "</svg>\n";
}

}  // namespace invar::cli
