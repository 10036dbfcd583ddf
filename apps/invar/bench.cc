// `invar bench`: tokens per second of prompts and replies at several depths and numbers of
// sequences, beside what the machine can do, and in turn with another command. What is measured
// stands in bench_cases.h, what is printed in bench_report.h.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>

#include "bench_report.h"
#include "commands.h"
#include "engine/memory_plan.h"
#include "exit_codes.h"
#include "model_files.h"
#include "models_folder.h"
#include "options.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "bench";
constexpr int64_t kMaxTokens = 1 << 20;

struct BenchFlags {
  std::string model;
  int64_t prefill = 512, decode = 64, repeat = 3;
  std::vector<int64_t> depths = {0}, batches = {1, 2, 4, 8};
  bool kernels = false, json = false, csv = false;
  std::string against;
  EngineFlags engine;
};

// What one round runs. A scenario at a depth is run once: its prompt is the expensive part, so all
// measurements are taken from the same sequences, one after another. `room`: the model's window.
std::vector<BenchScenario> scenarios_of(const BenchFlags& flags, int64_t chunk, int64_t room) {
  std::vector<BenchScenario> scenarios;
  if (flags.prefill > 0) scenarios.push_back({flags.prefill, 1, 0, 1});
  if (flags.decode == 0) return scenarios;
  for (const int64_t depth : flags.depths) {
    for (const int64_t batch : flags.batches) {
      BenchScenario scenario{std::max<int64_t>(depth, 1), static_cast<int>(batch), flags.decode, 1};
      if (depth > 0 && flags.against.empty()) {
        scenario.measurements = flags.repeat;
        while (scenario.measurements > 1 && positions_needed(scenario, chunk) > room)
          --scenario.measurements;
      }
      scenarios.push_back(scenario);
    }
  }
  return scenarios;
}

bool runs_once(const BenchFlags& flags, const BenchScenario& scenario) {
  return flags.against.empty() && scenario.prompt_tokens > 1 && scenario.decode_tokens > 0;
}

Result<void> measure(const BenchFlags& flags, const std::vector<BenchScenario>& scenarios,
                     BenchRunner& runner, BenchReport& report) {
  for (int64_t round = 0; round < flags.repeat; ++round) {
    for (const BenchScenario& scenario : scenarios) {
      const bool once = runs_once(flags, scenario);
      if (once && round > 0) continue;
      // After another command the caches are its; else only the first touch of memory is slow.
      // A long prompt in front of the decode is warmth enough.
      const bool cold = round == 0 || !flags.against.empty();
      if (cold && (scenario.decode_tokens == 0 || scenario.prompt_tokens == 1))
        INVAR_TRY_VOID(runner.warm_up(scenario));
      INVAR_TRY_VOID(runner.run(scenario, report.results));
    }
    if (flags.against.empty()) continue;
    INVAR_TRY(const std::vector<OtherResult> others, run_other(flags.against));
    report.ratios.resize(report.results.size());
    for (size_t i = 0; i < report.results.size(); ++i) {
      Comparison& comparison = report.ratios[i];
      comparison.what = report.results[i].what;
      const auto other = std::find_if(
          others.begin(), others.end(),
          [&](const OtherResult& candidate) { return candidate.what == comparison.what; });
      comparison.ours.push_back(report.results[i].runs.back().tokens_per_second());
      if (other != others.end()) comparison.theirs.push_back(other->tokens_per_second);
    }
  }
  return {};
}

// Positions and key/value memory for the largest scenario; an error that names the flags if the
// model's window or the memory is too small for it.
Result<void> plan_engine(const std::vector<BenchScenario>& scenarios, int64_t chunk,
                         const ModelInfo& info, EngineFlags& engine) {
  int64_t sequences = 1;
  for (const BenchScenario& scenario : scenarios) {
    const int64_t positions = positions_needed(scenario, chunk);
    if (positions > info.max_position_embeddings)
      return invalid_argument(
          "a prompt of %ld tokens and %ld more take %ld positions with %d sequences, the model's "
          "window has %ld; lower --depth, --prefill or --decode",
          long{scenario.prompt_tokens}, long{scenario.decode_tokens}, long{positions},
          scenario.sequences, long{info.max_position_embeddings});
    engine.context = std::max(engine.context, positions);
    sequences = std::max<int64_t>(sequences, scenario.sequences);
  }
  INVAR_TRY(const std::unique_ptr<Backend> backend, open_backend(engine));
  const int64_t pages = (engine.context + kPagePositions - 1) / kPagePositions;
  const uint64_t needed =
      static_cast<uint64_t>(pages * sequences) * backend->kv_page_bytes(std::span(info.kv_layers));
  const uint64_t free_bytes = free_memory(*backend).bytes;
  if (info.packed_bytes + needed > free_bytes)
    return resource_exhausted(
        "keys and values of %ld sequences of %ld positions take %s, the weights %s, and %s are "
        "free; lower --depth or --batch",
        long{sequences}, long{engine.context}, readable_bytes(needed).c_str(),
        readable_bytes(info.packed_bytes).c_str(), readable_bytes(free_bytes).c_str());
  engine.kv_bytes = static_cast<int64_t>(needed);
  return {};
}

int bench(const BenchFlags& flags) {
  Interrupts::start();
  const Result<ModelFiles> files = open_model_files(flags.model);
  if (!files) return fail(kCommand, files.error());
  const int64_t chunk = EngineOptions().prefill_chunk;
  const std::vector<BenchScenario> scenarios =
      scenarios_of(flags, chunk, files->info.max_position_embeddings);
  if (scenarios.empty())
    return fail(kCommand, "--prefill 0 and --decode 0 leave nothing to measure", kExitUsage);
  EngineFlags engine_flags = flags.engine;
  engine_flags.packed_cache_wait = true;  // nothing is written while we measure
  // Prompts in front of a measurement do not wait for those who decode already.
  engine_flags.step_slowdown = 0;
  if (const auto planned = plan_engine(scenarios, chunk, files->info, engine_flags); !planned)
    return fail(kCommand, planned.error().message,
                planned.error().code == ErrorCode::kInvalidArgument
                    ? kExitUsage
                    : exit_code(planned.error().code));

  TimedBackend* timed = nullptr;
  const WrapBackend wrap = [&](std::unique_ptr<Backend> inner) -> std::unique_ptr<Backend> {
    auto wrapped = std::make_unique<TimedBackend>(std::move(inner), flags.kernels);
    timed = wrapped.get();
    return wrapped;
  };
  const auto most = std::max_element(flags.batches.begin(), flags.batches.end());
  const auto begin = std::chrono::steady_clock::now();
  int code = kExitOk;
  const std::unique_ptr<Engine> engine =
      open_engine(kCommand, flags.model, engine_flags, static_cast<int>(*most), code, wrap);
  if (engine == nullptr) return code;

  BenchReport report;
  report.load_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin).count();
  report.model = engine->description();
  report.kernels = flags.kernels;
  report.against = flags.against;
  CeilingProbe probe(report.model, *timed);
  BenchRunner runner(*engine, *timed, probe, chunk);
  if (const auto measured = measure(flags, scenarios, runner, report); !measured)
    return fail(kCommand, measured.error().message, kExitFailed);
  struct rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  report.peak_bytes = int64_t{usage.ru_maxrss} * 1024;

  if (flags.json) {
    print(report_json(report).dump() + "\n");
  } else {
    print(flags.csv ? report_csv(report) : report_table(report));
  }
  return kExitOk;
}

}  // namespace

std::function<int()> add_bench(FlagSet& flags) {
  auto options = std::make_shared<BenchFlags>();
  add_model(flags, options->model);
  flags.group("What is measured");
  flags.whole("--prefill", "N", {0, kMaxTokens}, options->prefill, "Tokens of a prompt; 0: none.",
              "512");
  flags.whole("--decode", "N", {0, kMaxTokens}, options->decode, "Tokens of each reply; 0: none.",
              "64");
  flags.wholes("--depth", "N,...", {0, kMaxTokens}, options->depths,
               "Positions before the reply; a prompt of that length is read first, once for each "
               "number of sequences.",
               "0");
  flags.wholes("--batch", "N,...", {1, 256}, options->batches,
               "Sequences that decode together; figures are totals.", "1,2,4,8");
  flags.whole("--repeat", "N", {1, 100}, options->repeat,
              "Measurements of each case; one before them does not count.", "3");
  flags.toggle("--kernels", options->kernels, "Time each operation as well (costs about 1 %).");
  flags.text("--against", "COMMAND", options->against,
             "Run COMMAND after each round of ours (A B A B) and print ratios. It prints what "
             "`invar bench --json` does; bench/peer.py does so for llama.cpp.");
  options->engine.add_backend(flags);
  flags.group("Output");
  flags.toggle("--json", options->json, "One JSON object, each run's figures in it.");
  flags.toggle("--csv", options->csv, "One line for each case, with a head line.");
  flags.footer(
      "Percentages are of what the same process measured just before and after: reading memory\n"
      "with every thread, and the instruction set's byte dots from registers (on a GPU: reading "
      "its\n"
      "memory, and wgmma on operands that never change).\n\nExamples:\n"
      "  invar bench model.gguf --threads 2\n"
      "  invar bench model.gguf --prefill 0 --batch 1 --depth 0,7936 --kernels\n"
      "  invar bench model.gguf --against 'bench/peer.py model.gguf --threads 2'");
  return [options] { return bench(*options); };
}

}  // namespace invar::cli
