// The report of `invar bench`, for people and for machines.
#include "bench_report.h"

#include <algorithm>

#include "base/result.h"
#include "cpu_name.h"
#include "models_folder.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr double kGiga = 1e9;

// "61.2 %", or "-" where there is no ceiling.
std::string percent(double value) { return value > 0 ? format("%.0f %%", value) : "-"; }

std::string cell(double value, const char* fmt) { return value > 0 ? format(fmt, value) : "-"; }

// What the operations of a case's runs come to.
struct Profile {
  std::vector<OpTime> ops;                            // slowest first
  double step_ms = 0, inside_ms = 0, outside_ms = 0;  // a step; inside: between operations
  int num_steps = 0;
  double rows_a_step = 0;
  Ceilings ceilings;
};

Profile profile_of(const BenchResult& result) {
  Profile profile;
  double seconds = 0, outside = 0, inside = 0, tokens = 0;
  for (const BenchRun& run : result.runs) {
    profile.num_steps += run.num_steps;
    seconds += run.seconds;
    outside += run.outside_seconds;
    inside += run.seconds - run.outside_seconds;
    tokens += run.tokens;
    profile.ceilings.read += run.ceilings.read / static_cast<double>(result.runs.size());
    profile.ceilings.dots += run.ceilings.dots / static_cast<double>(result.runs.size());
    for (const OpTime& op : run.ops) {
      inside -= op.seconds;
      auto found = std::find_if(profile.ops.begin(), profile.ops.end(), [&](const OpTime& other) {
        return other.kind == op.kind && other.num_rows == op.num_rows &&
               other.num_cols == op.num_cols;
      });
      if (found == profile.ops.end()) {
        profile.ops.push_back(op);
        continue;
      }
      found->num_calls += op.num_calls;
      found->seconds += op.seconds;
      found->read_bytes += op.read_bytes;
      found->macs += op.macs;
    }
  }
  std::sort(profile.ops.begin(), profile.ops.end(),
            [](const OpTime& a, const OpTime& b) { return a.seconds > b.seconds; });
  const double steps = profile.num_steps;
  profile.step_ms = 1e3 * seconds / steps;
  profile.inside_ms = 1e3 * inside / steps;
  profile.outside_ms = 1e3 * outside / steps;
  profile.rows_a_step = tokens / steps;
  return profile;
}

std::string shape_text(const OpTime& op) {
  if (op.kind == OpKind::kAttention)
    return op.num_cols > 0 ? format("window %lld", static_cast<long long>(op.num_cols)) : "full";
  if (op.num_rows == 0) return format("%lld", static_cast<long long>(op.num_cols));
  return format("%s%lld x %lld", op.kind == OpKind::kGatedLinear ? "2 x " : "",
                static_cast<long long>(op.num_rows), static_cast<long long>(op.num_cols));
}

bool is_linear(OpKind kind) {
  return kind == OpKind::kLinear || kind == OpKind::kGatedLinear || kind == OpKind::kLmHead ||
         kind == OpKind::kMoe;
}

std::string case_name(const BenchCase& what) {
  std::string name =
      format("%s of %lld tokens", work_name(what.work), static_cast<long long>(what.tokens));
  if (what.depth > 0) name += format(" at depth %lld", static_cast<long long>(what.depth));
  if (what.sequences > 1) name += format(", %d sequences", what.sequences);
  return name;
}

std::string kernel_table(const BenchResult& result) {
  const Profile profile = profile_of(result);
  std::string out = format("\n%s: %.3f ms a step of %.0f rows\n", case_name(result.what).c_str(),
                           profile.step_ms, profile.rows_a_step);
  out += format("  %-14s %18s %6s %9s %6s %7s %6s %7s %6s\n", "operation", "shape", "calls", "ms",
                "share", "GB/s", "read", "GOPS", "dots");
  const double steps = profile.num_steps;
  for (const OpTime& op : profile.ops) {
    const double gigabytes = op.read_bytes / op.seconds, dots = 2 * op.macs / op.seconds;
    out += format(
        "  %-14s %18s %6.0f %9.3f %6s %7s %6s %7s %6s\n", op_kind_name(op.kind),
        shape_text(op).c_str(), op.num_calls / steps, 1e3 * op.seconds / steps,
        percent(1e5 * op.seconds / steps / profile.step_ms).c_str(),
        cell(gigabytes / kGiga, "%.1f").c_str(),
        percent(profile.ceilings.read > 0 ? 100 * gigabytes / profile.ceilings.read : 0).c_str(),
        cell(dots / kGiga, "%.1f").c_str(),
        percent(is_linear(op.kind) && profile.ceilings.dots > 0 ? 100 * dots / profile.ceilings.dots
                                                                : 0)
            .c_str());
  }
  const auto rest = [&](const char* name, double ms) {
    out += format("  %-33s %6s %9.3f %6s\n", name, "", ms,
                  percent(100 * ms / profile.step_ms).c_str());
  };
  rest("rest of the forward pass", profile.inside_ms);
  rest("sampling, scheduling, text", profile.outside_ms);
  return out;
}

Json kernel_json(const BenchResult& result) {
  const Profile profile = profile_of(result);
  const double steps = profile.num_steps;
  Json ops = Json::array();
  for (const OpTime& op : profile.ops) {
    Json json = Json::object();
    json.set("operation", op_kind_name(op.kind));
    json.set("rows", op.num_rows);
    json.set("cols", op.num_cols);
    json.set("calls", op.num_calls / steps);
    json.set("ms", 1e3 * op.seconds / steps);
    json.set("read_bytes", op.read_bytes / steps);
    json.set("operations", 2 * op.macs / steps);
    ops.push_back(std::move(json));
  }
  Json json = Json::object();
  json.set("step_ms", profile.step_ms);
  json.set("rest_of_forward_ms", profile.inside_ms);
  json.set("outside_ms", profile.outside_ms);
  json.set("operations", std::move(ops));
  return json;
}

// The extremes over all runs.
struct Range {
  double low = 0, high = 0;
};
Range ceiling_range(const std::vector<BenchResult>& results, double Ceilings::* ceiling) {
  Range range;
  for (const BenchResult& result : results) {
    for (const BenchRun& run : result.runs) {
      const double value = run.ceilings.*ceiling;
      range.low = range.high == 0 ? value : std::min(range.low, value);
      range.high = std::max(range.high, value);
    }
  }
  return range;
}

std::string ratio_table(const BenchReport& report) {
  std::string out = "\nagainst: " + for_stdout(report.against) + "\n";
  out += format("%-8s %7s %7s %6s %10s %10s %8s %16s\n", "work", "tokens", "depth", "seqs", "ours",
                "theirs", "ratio", "low to high");
  for (const Comparison& comparison : report.ratios) {
    const BenchCase& what = comparison.what;
    out += format("%-8s %7lld %7lld %6d %10.1f ", work_name(what.work),
                  static_cast<long long>(what.tokens), static_cast<long long>(what.depth),
                  what.sequences, median(comparison.ours));
    const std::vector<double> ratios = comparison.ratios();
    if (ratios.empty()) {
      out += format("%10s\n", "-");
      continue;
    }
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    out += format("%10.1f %8s %16s\n", median(comparison.theirs),
                  format("%.2fx", median(ratios)).c_str(),
                  format("%.2fx to %.2fx", *low, *high).c_str());
  }
  return out;
}

Json numbers(const std::vector<double>& values) {
  Json json = Json::array();
  for (const double value : values) json.push_back(value);
  return json;
}

Json case_json(const BenchCase& what) {
  Json json = Json::object();
  json.set("work", work_name(what.work));
  json.set("tokens", what.tokens);
  json.set("depth", what.depth);
  json.set("sequences", what.sequences);
  return json;
}

}  // namespace

std::string report_table(const BenchReport& report) {
  const ModelDescription& model = report.model;
  std::string out =
      format("%s (%s, %s), %s %s, %d threads, arithmetic %s\n%s", model_label(model.path).c_str(),
             model.family.c_str(), model.quantization.c_str(), model.backend.c_str(),
             model.isa.c_str(), model.num_threads, model.arithmetic_id.c_str(), cpu_name().c_str());
  const Range read = ceiling_range(report.results, &Ceilings::read);
  const Range dots = ceiling_range(report.results, &Ceilings::dots);
  if (read.high > 0)
    out += format("; ceilings: reads %.1f to %.1f GB/s", read.low / kGiga, read.high / kGiga);
  if (dots.high > 0)
    out += format(", byte dots %.0f to %.0f GOPS", dots.low / kGiga, dots.high / kGiga);
  out += format("\n\n%-8s %7s %7s %6s %10s %17s %10s %6s %6s\n", "work", "tokens", "depth", "seqs",
                "tokens/s", "low to high", "MB/token", "read", "dots");
  for (const BenchResult& result : report.results) {
    const BenchCase& what = result.what;
    out += format("%-8s %7lld %7lld %6d %10.1f %17s %10.2f %6s %6s\n", work_name(what.work),
                  static_cast<long long>(what.tokens), static_cast<long long>(what.depth),
                  what.sequences, result.median(&BenchRun::tokens_per_second),
                  format("%.1f to %.1f", result.low(), result.high()).c_str(),
                  result.median(&BenchRun::bytes_per_token) / 1e6,
                  percent(result.median(&BenchRun::read_percent)).c_str(),
                  percent(result.median(&BenchRun::dot_percent)).c_str());
  }
  out +=
      format("\nloaded in %.2f s, peak memory %s (mapped file pages included)\n",
             report.load_ms / 1000, human_bytes(static_cast<uint64_t>(report.peak_bytes)).c_str());
  if (report.kernels)
    for (const BenchResult& result : report.results) out += kernel_table(result);
  if (!report.against.empty()) out += ratio_table(report);
  return for_stdout(out);
}

std::string report_csv(const BenchReport& report) {
  const ModelDescription& model = report.model;
  std::string out =
      "model,model_sha,quantization,version,cpu,backend,isa,arithmetic_id,threads,work,tokens,"
      "depth,sequences,tokens_per_second,low,high,runs,bytes_per_token,read_percent,dot_percent,"
      "read_ceiling,dot_ceiling,other_tokens_per_second,ratio,ratio_low,ratio_high\n";
  for (const BenchResult& result : report.results) {
    const BenchCase& what = result.what;
    std::vector<double> read, dots;
    for (const BenchRun& run : result.runs) {
      read.push_back(run.ceilings.read);
      dots.push_back(run.ceilings.dots);
    }
    out += format("%s,%s,%s,%s,%s,%s,%s,%s,%d,", model_label(model.path).c_str(),
                  model.model_sha.c_str(), model.quantization.c_str(), version(),
                  cpu_name().c_str(), model.backend.c_str(), model.isa.c_str(),
                  model.arithmetic_id.c_str(), model.num_threads);
    out +=
        format("%s,%lld,%lld,%d,%.2f,%.2f,%.2f,%zu,%.0f,%.1f,%.1f,%.4g,%.4g,", work_name(what.work),
               static_cast<long long>(what.tokens), static_cast<long long>(what.depth),
               what.sequences, result.median(&BenchRun::tokens_per_second), result.low(),
               result.high(), result.runs.size(), result.median(&BenchRun::bytes_per_token),
               result.median(&BenchRun::read_percent), result.median(&BenchRun::dot_percent),
               median(read), median(dots));
    const auto found =
        std::find_if(report.ratios.begin(), report.ratios.end(),
                     [&](const Comparison& comparison) { return comparison.what == what; });
    const std::vector<double> ratios =
        found == report.ratios.end() ? std::vector<double>() : found->ratios();
    if (ratios.empty()) {
      out += ",,,\n";
      continue;
    }
    const auto [low, high] = std::minmax_element(ratios.begin(), ratios.end());
    out += format("%.2f,%.3f,%.3f,%.3f\n", median(found->theirs), median(ratios), *low, *high);
  }
  return out;
}

Json report_json(const BenchReport& report) {
  const ModelDescription& model = report.model;
  Json json = Json::object();
  json.set("version", version());
  json.set("model", model.path);
  json.set("model_sha", model.model_sha);
  json.set("quantization", model.quantization);
  json.set("cpu", cpu_name());
  json.set("backend", model.backend);
  json.set("isa", model.isa);
  json.set("arithmetic_id", model.arithmetic_id);
  json.set("threads", model.num_threads);
  json.set("load_ms", report.load_ms);
  json.set("peak_bytes", report.peak_bytes);
  json.set("weight_bytes", static_cast<int64_t>(model.weight_bytes));
  json.set("streamed_bytes_per_token", model.streamed_bytes_per_token);
  json.set("kv_bytes_per_position", static_cast<int64_t>(model.kv_bytes_per_position));
  Json results = Json::array();
  for (const BenchResult& result : report.results) {
    Json entry = case_json(result.what);
    entry.set("tokens_per_second", result.median(&BenchRun::tokens_per_second));
    entry.set("bytes_per_token", result.median(&BenchRun::bytes_per_token));
    entry.set("read_percent", result.median(&BenchRun::read_percent));
    entry.set("dot_percent", result.median(&BenchRun::dot_percent));
    Json runs = Json::array();
    for (const BenchRun& run : result.runs) {
      Json one = Json::object();
      one.set("tokens_per_second", run.tokens_per_second());
      one.set("read_ceiling", run.ceilings.read);
      one.set("dot_ceiling", run.ceilings.dots);
      runs.push_back(std::move(one));
    }
    entry.set("runs", std::move(runs));
    if (report.kernels) entry.set("kernels", kernel_json(result));
    results.push_back(std::move(entry));
  }
  json.set("results", std::move(results));
  if (report.against.empty()) return json;
  Json ratios = Json::array();
  for (const Comparison& comparison : report.ratios) {
    Json entry = case_json(comparison.what);
    entry.set("ours", numbers(comparison.ours));
    entry.set("theirs", numbers(comparison.theirs));
    const std::vector<double> values = comparison.ratios();
    if (!values.empty()) entry.set("ratio", median(values));
    ratios.push_back(std::move(entry));
  }
  json.set("against", report.against);
  json.set("comparison", std::move(ratios));
  return json;
}

}  // namespace invar::cli
