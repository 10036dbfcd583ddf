#include "profile_report.h"

#include <algorithm>
#include <cmath>

#include "base/log.h"
#include "models_folder.h"
#include "svg_chart.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr double kTolerance = 0.02;
constexpr size_t kTableOps = 5, kChartOps = 5;

long long number(int64_t value) { return static_cast<long long>(value); }

std::string op_name(const ProfiledOp& op) {
  std::string name = op_kind_name(op.kind);
  if (op.kind == OpKind::kAttention)
    return op.num_cols > 0 ? name + format(" (window %lld)", number(op.num_cols)) : name;
  if (op.num_rows == 0) return name + format(" %lld", number(op.num_cols));
  return name + format(" %lldx%lld", number(op.num_rows), number(op.num_cols));
}

// The operations that take most of the step with most rows.
std::vector<ProfiledOp> largest_ops(const ProfilePoint& point, size_t count) {
  std::vector<ProfiledOp> ops = point.ops;
  std::sort(ops.begin(), ops.end(),
            [](const auto& a, const auto& b) { return a.seconds > b.seconds; });
  if (ops.size() > count) ops.resize(count);
  return ops;
}

std::string crossover_text(const KernelCrossover& crossover, int never) {
  return crossover.min_rows >= never ? "never" : format("from %d rows", crossover.min_rows);
}

std::string crossover_name(const KernelCrossover& crossover) {
  return format("%s%lldx%lld", crossover.gated ? "2 x " : "", number(crossover.num_rows),
                number(crossover.num_cols));
}

Json points_json(const std::vector<ProfilePoint>& points) {
  Json list = Json::array();
  for (const ProfilePoint& point : points) {
    Json ops = Json::array();
    for (const ProfiledOp& op : point.ops) {
      Json json = Json::object();
      json.set("operation", op_kind_name(op.kind));
      json.set("rows", op.num_rows);
      json.set("cols", op.num_cols);
      json.set("calls", op.num_calls);
      json.set("ms", 1e3 * op.seconds);
      ops.push_back(std::move(json));
    }
    Json json = Json::object();
    json.set("rows", point.rows);
    json.set("step_ms", 1e3 * point.seconds);
    json.set("tokens_per_second", tokens_per_second(point));
    json.set("operations", std::move(ops));
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

double tuning_gain(const ProfileReport& report) {
  double sum = 0;
  const auto& [built_in, tuned] = report.totals.settings;
  for (size_t i = 0; i < tuned.size(); ++i) sum += std::log(built_in[i].seconds / tuned[i].seconds);
  return std::exp(sum / static_cast<double>(tuned.size()));
}

std::optional<double> noise(const ProfileReport& report) {
  constexpr int kFewRows = 8;  // no set's own crossover is as low
  int limit = kFewRows;
  for (const KernelCrossover& crossover : report.crossovers)
    limit = std::min(limit, crossover.min_rows - 1);
  std::optional<double> most;
  const auto& [built_in, tuned] = report.totals.settings;
  for (size_t i = 0; i < tuned.size(); ++i)
    if (tuned[i].rows <= limit)
      most = std::max(most.value_or(0), std::fabs(built_in[i].seconds / tuned[i].seconds - 1));
  return most;
}

std::string profile_table(const ProfileReport& report) {
  const ModelDescription& d = report.model;
  const auto& [built_in, tuned] = report.totals.settings;
  std::string out =
      for_stdout(model_label(d.path)) + ": " + d.family + " " + d.quantization + " on " +
      for_stdout(report.cpu) +
      format(", %s, %d threads, %s\n", d.isa.c_str(), d.num_threads, d.arithmetic_id.c_str());
  out += "Quickest steps; ms of a step's operations, all layers together.\n\n";
  const std::vector<ProfiledOp> ops = largest_ops(tuned.back(), kTableOps);
  out += format("%4s %9s %8s %9s %8s", "rows", "step ms", "ms/row", "tokens/s", "built-in");
  for (const ProfiledOp& op : ops) out += format(" %22s", op_name(op).c_str());
  out += "\n";
  for (size_t i = 0; i < tuned.size(); ++i) {
    const ProfilePoint& point = tuned[i];
    out += format("%4d %9.2f %8.3f %9.1f %8.1f", point.rows, 1e3 * point.seconds,
                  1e3 * point.seconds / point.rows, tokens_per_second(point),
                  tokens_per_second(built_in[i]));
    for (const ProfiledOp& op : ops) {
      const ProfiledOp* here = find_op(point, op);
      out += format(" %22s", here == nullptr ? "-" : format("%.2f", 1e3 * here->seconds).c_str());
    }
    out += "\n";
  }
  out += "\nPanels are unpacked once for all rows:\n";
  for (const KernelCrossover& crossover : report.crossovers)
    out += format("  %-18s %s\n", crossover_name(crossover).c_str(),
                  crossover_text(crossover, report.never).c_str());
  out += format("against the built-in crossovers: %.3fx tokens/s over all row counts\n\n",
                tuning_gain(report));
  const std::optional<double> apart = noise(report);
  if (!apart)
    out += "whether the machine was busy cannot be told: no steps ran the same kernels twice\n";
  else if (*apart > kMostNoise)
    out += format(
        "THE MACHINE WAS BUSY: equal steps are up to %.0f %% apart; what follows is noise, try "
        "again\n",
        100 * *apart);
  const std::vector<Fall> falls = find_falls(tuned, kTolerance);
  if (falls.empty()) out += "total tokens/s never fall when a row joins (within 2 %)\n";
  for (const Fall& fall : falls)
    out += format("total tokens/s FALL by %.1f %% from %d to %d rows; most in %s\n", fall.percent,
                  fall.from_rows, fall.to_rows, op_name(fall.op).c_str());
  if (!report.why_no_tuning.empty())
    out += "tuning file not written: " + report.why_no_tuning + "\n";
  if (!report.tuning_path.empty()) out += "tuning: " + for_stdout(report.tuning_path) + "\n";
  if (!report.svg_path.empty()) out += "picture: " + for_stdout(report.svg_path) + "\n";
  return out;
}

Json profile_json(const ProfileReport& report) {
  const ModelDescription& d = report.model;
  const auto& [built_in, tuned] = report.totals.settings;
  Json crossovers = Json::array();
  for (const KernelCrossover& crossover : report.crossovers) {
    Json json = Json::object();
    json.set("gated", crossover.gated);
    json.set("rows", crossover.num_rows);
    json.set("cols", crossover.num_cols);
    json.set("min_rows", crossover.min_rows >= report.never ? Json() : Json(crossover.min_rows));
    crossovers.push_back(std::move(json));
  }
  Json falls = Json::array();
  for (const Fall& fall : find_falls(tuned, kTolerance)) {
    Json json = Json::object();
    json.set("from_rows", fall.from_rows);
    json.set("to_rows", fall.to_rows);
    json.set("percent", fall.percent);
    json.set("operation", op_name(fall.op));
    falls.push_back(std::move(json));
  }
  Json json = Json::object();
  json.set("model", d.path);
  json.set("model_sha", d.model_sha);
  json.set("cpu", report.cpu);
  json.set("isa", d.isa);
  json.set("threads", d.num_threads);
  json.set("arithmetic_id", d.arithmetic_id);
  json.set("tuned", points_json(tuned));
  json.set("built_in", points_json(built_in));
  json.set("never_unpacked", points_json(report.kernels.settings[0]));
  json.set("always_unpacked", points_json(report.kernels.settings[1]));
  json.set("crossovers", std::move(crossovers));
  json.set("gain", tuning_gain(report));
  const std::optional<double> apart = noise(report);
  json.set("noise", apart ? Json(*apart) : Json());
  json.set("falls", std::move(falls));
  json.set("tuning_file", report.tuning_path.empty() ? Json() : Json(report.tuning_path));
  json.set("why_no_tuning", report.why_no_tuning.empty() ? Json() : Json(report.why_no_tuning));
  return json;
}

std::string profile_svg(const ProfileReport& report) {
  const ModelDescription& d = report.model;
  const auto& [built_in, tuned] = report.totals.settings;
  Chart rows;
  rows.title = "Time a row";
  rows.x_label = "rows in a step";
  rows.y_label = "ms a row";
  ChartLine whole{"whole step", {}};
  for (const ProfilePoint& point : tuned)
    whole.points.emplace_back(point.rows, 1e3 * point.seconds / point.rows);
  rows.lines.push_back(std::move(whole));
  for (const ProfiledOp& op : largest_ops(tuned.back(), kChartOps)) {
    ChartLine line{op_name(op), {}};
    for (const ProfilePoint& point : tuned)
      if (const ProfiledOp* here = find_op(point, op); here != nullptr)
        line.points.emplace_back(point.rows, 1e3 * here->seconds / point.rows);
    rows.lines.push_back(std::move(line));
  }
  Chart total;
  total.title = "Total tokens/s";
  total.x_label = "concurrent requests";
  total.y_label = "tokens/s, all requests together";
  for (const auto* points : {&tuned, &built_in}) {
    const bool is_tuned = points == &tuned;
    ChartLine line{is_tuned ? "measured crossovers" : "built-in crossovers", {}, !is_tuned};
    for (const ProfilePoint& point : *points)
      line.points.emplace_back(point.rows, tokens_per_second(point));
    total.lines.push_back(std::move(line));
  }
  std::string about =
      format("%s, %s, %d threads, arithmetic %s; quickest steps", report.cpu.c_str(), d.isa.c_str(),
             d.num_threads, d.arithmetic_id.c_str());
  // A picture goes where the table's warning does not.
  const std::optional<double> apart = noise(report);
  if (!apart || *apart > kMostNoise)
    about +=
        apart ? format("; THE MACHINE WAS BUSY: equal steps are up to %.0f %% apart", 100 * *apart)
              : std::string("; whether the machine was busy cannot be told");
  return svg_charts(escape_control(model_label(d.path)), about, {rows, total});
}

}  // namespace invar::cli
