// `invar profile`: what a step costs with 1 to 64 rows, kernel by kernel; where one kernel
// overtakes another; and a tuning file with that (tuning.h). Measuring is profile_measure.h's, what
// is shown profile_report.h's.
#include <fstream>

#include "commands.h"
#include "engine/memory_plan.h"
#include "exit_codes.h"
#include "model_files.h"
#include "models_folder.h"
#include "options.h"
#include "profile_report.h"
#include "progress.h"
#include "terminal.h"
#include "tuning.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "profile";
constexpr double kLeastGain = 1.005;
constexpr int kNever = 1 << 20;  // rows; as the tuning file has it

struct ProfileFlags {
  std::string model, svg;
  int64_t max_rows = 64, repeat = 3;
  std::string tuning = "auto";
  bool quick = false, json = false;
  EngineFlags engine;
};

// All up to 32, then fewer: there the curves are smooth.
std::vector<int> total_rows(const ProfileFlags& flags) {
  std::vector<int> rows;
  const int step = flags.quick ? 4 : 1;
  for (int n = 1; n <= 64; n += n < 8 ? 1 : n < 32 ? step : 8)
    if (n <= flags.max_rows) rows.push_back(n);
  return rows;
}

std::vector<int> kernel_rows(const ProfileFlags& flags) {
  std::vector<int> rows;
  for (const int n : {1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 16, 18, 20, 24, 28, 32, 40, 48, 56, 64})
    if (n <= flags.max_rows && (!flags.quick || n % 4 == 0 || n < 3)) rows.push_back(n);
  return rows;
}

std::vector<KernelCrossover> all_at(std::vector<KernelCrossover> shapes, int min_rows) {
  for (KernelCrossover& shape : shapes) shape.min_rows = min_rows;
  return shapes;
}

Result<void> measure(const ProfileFlags& flags, ProfileRunner& runner, ProfileReport& report) {
  const ProfileEffort effort{flags.quick ? 1 : static_cast<int>(flags.repeat), flags.quick ? 2 : 4};
  const auto pass = [&](const char* label, const std::vector<int>& rows,
                        const std::vector<KernelCrossover>& first,
                        const std::vector<KernelCrossover>& second,
                        const ProfileEffort& how) -> Result<ProfilePass> {
    Progress progress(label, Progress::Unit::kSteps);
    return runner.measure(rows, first, second, how, [&](int done, int total) {
      progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total));
    });
  };
  // Which matrices there are; touches memory for the first time.
  INVAR_TRY(const ProfilePass first, pass("warming up", {1}, {}, {}, {1, 2}));
  const std::vector<KernelCrossover> shapes = shapes_of(first);
  INVAR_TRY(report.kernels,
            pass("kernels", kernel_rows(flags), all_at(shapes, kNever), all_at(shapes, 1), effort));
  report.never = kNever;
  report.crossovers = find_crossovers(report.kernels, kNever);
  INVAR_TRY(report.totals, pass("totals", total_rows(flags), {}, report.crossovers, effort));
  return {};
}

Result<void> write_svg(const std::string& path, const std::string& text,
                       std::ios::openmode mode = std::ios::trunc) {
  std::ofstream file(path, std::ios::binary | mode);
  file << text;
  file.close();
  if (!file) return io_error("%s cannot be written", path.c_str());
  return {};
}

// Why the measured crossovers are no better than the built-in ones, or "".
std::string why_not(const ProfileReport& report) {
  const std::optional<double> apart = noise(report);
  if (!apart) return "no steps ran the same kernels twice, which would show a busy machine";
  if (*apart > kMostNoise) return "the machine was busy";
  const double gain = tuning_gain(report);
  return gain < kLeastGain ? format("%.3fx the built-in speed is no gain", gain) : "";
}

int profile(const ProfileFlags& flags) {
  Interrupts::start();
  const Result<ModelFiles> files = open_model_files(flags.model);
  if (!files) return fail(kCommand, files.error());
  // Minutes of measuring shall not end in a path that cannot be written.
  if (!flags.svg.empty())
    if (const auto written = write_svg(flags.svg, "", std::ios::app); !written)
      return fail(kCommand, written.error().message, kExitFailed);
  EngineFlags engine_flags = flags.engine;
  engine_flags.packed_cache_wait = true;  // nothing is written while we measure
  engine_flags.context = kPagePositions;  // more than any sequence needs
  engine_flags.step_slowdown = 0;         // prompts in as few steps as can be: replies are timed
  {
    const Result<std::unique_ptr<Backend>> backend = open_backend(engine_flags);
    if (!backend)
      return fail(kCommand, backend.error().message, open_exit_code(backend.error(), flags.model));
    engine_flags.kv_bytes =
        flags.max_rows *
        static_cast<int64_t>((*backend)->kv_page_bytes(std::span(files->info.kv_layers)));
  }
  TimedBackend* timed = nullptr;
  Tunable* tunable = nullptr;
  const WrapBackend wrap = [&](std::unique_ptr<Backend> inner) -> std::unique_ptr<Backend> {
    tunable = dynamic_cast<Tunable*>(inner.get());
    auto wrapped = std::make_unique<TimedBackend>(std::move(inner), true);
    timed = wrapped.get();
    return wrapped;
  };
  int code = kExitOk;
  const std::unique_ptr<Engine> engine = open_engine(kCommand, flags.model, engine_flags,
                                                     static_cast<int>(flags.max_rows), code, wrap);
  if (engine == nullptr) return code;
  if (tunable == nullptr)
    return fail(kCommand, "backend " + flags.engine.backend + " has nothing to tune",
                kExitUnsupported);

  ProfileReport report;
  report.model = engine->description();
  const TuningKey key = tuning_key(report.model);
  report.cpu = key.cpu;
  ProfileRunner runner(*engine, *timed, *tunable);
  if (const auto measured = measure(flags, runner, report); !measured)
    return fail(kCommand, measured.error().message, kExitFailed);

  const std::string folder = tuning_folder();
  const bool is_wanted = flags.tuning != "never";
  if (is_wanted && folder.empty())
    report.why_no_tuning = "there is no folder for it: INVAR_TUNING is off, or no home is set";
  else if (flags.tuning == "auto")
    report.why_no_tuning = why_not(report);
  if (is_wanted && report.why_no_tuning.empty()) {
    if (const auto written = write_tuning(folder, key, tuning_json(key, Tuning{report.crossovers}));
        !written)
      return fail(kCommand, written.error().message, kExitFailed);
    report.tuning_path = tuning_path(folder, key);
  }
  if (!flags.svg.empty()) {
    if (const auto written = write_svg(flags.svg, profile_svg(report)); !written)
      return fail(kCommand, written.error().message, kExitFailed);
    report.svg_path = flags.svg;
  }
  print(flags.json ? profile_json(report).dump() + "\n" : profile_table(report));
  return kExitOk;
}

}  // namespace

std::function<int()> add_profile(FlagSet& flags) {
  auto options = std::make_shared<ProfileFlags>();
  add_model(flags, options->model);
  flags.group("What is measured");
  flags.whole("--rows", "N", {2, 64}, options->max_rows, "Steps with up to N rows.", "64");
  flags.whole("--repeat", "N", {1, 100}, options->repeat,
              "Rounds over all row counts; the quickest step of each counts.", "3");
  flags.toggle("--quick", options->quick, "One round, fewer row counts.");
  flags.group("Output");
  flags.text("--svg", "FILE", options->svg, "Draws time a row and total tokens/s.");
  flags.toggle("--json", options->json, "One JSON object, with every operation's time.");
  flags.choice("--tuning", {"auto", "always", "never"}, options->tuning,
               "Whether a tuning file is written; auto: when it makes steps quicker.", "auto");
  options->engine.add_backend(flags);
  flags.footer(
      "The tuning file goes to $INVAR_TUNING, else $XDG_CACHE_HOME/invar/tuning, else\n"
      "~/.cache/invar/tuning; run, serve and bench use it. It changes speed, never a token.\n\n"
      "Example:\n"
      "  invar profile SmolLM2-135M-Instruct --svg profile.svg");
  return [options] { return profile(*options); };
}

}  // namespace invar::cli
