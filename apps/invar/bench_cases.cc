// Running a scenario and cutting its steps into measurements.
#include "bench_cases.h"

#include <algorithm>

#include "base/check.h"
#include "base/result.h"

namespace invar::cli {
namespace {

// Steps with all sequences that do not count: the first one after a prompt.
constexpr int64_t kSettlingSteps = 1;

double seconds_between(const StepTime& from, const StepTime& to) {
  return std::chrono::duration<double>(to.start - from.start).count();
}

std::vector<int32_t> random_ids(int64_t count, int32_t vocab_size, uint64_t seed) {
  std::vector<int32_t> ids;
  uint64_t state = seed * 0x9E3779B97F4A7C15u + 1;
  for (int64_t i = 0; i < count; ++i) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    ids.push_back(static_cast<int32_t>((state >> 33) % static_cast<uint64_t>(vocab_size)));
  }
  return ids;
}

// Steps a step's worth of other prompts may take while a sequence decodes already.
int64_t steps_before_all_decode(const BenchScenario& scenario, int64_t prefill_chunk) {
  if (scenario.sequences == 1) return 0;
  return (scenario.prompt_tokens / prefill_chunk + 2) * scenario.sequences;
}

int64_t events_needed(const BenchScenario& scenario) {
  if (scenario.decode_tokens == 0) return 1;
  return scenario.measurements * scenario.decode_tokens + kSettlingSteps + 2;
}

void add_ops(std::vector<OpTime>& sums, const std::vector<OpTime>& ops) {
  for (const OpTime& op : ops) {
    auto found = std::find_if(sums.begin(), sums.end(), [&](const OpTime& sum) {
      return sum.kind == op.kind && sum.num_rows == op.num_rows && sum.num_cols == op.num_cols;
    });
    if (found == sums.end()) {
      sums.push_back(op);
      continue;
    }
    found->num_calls += op.num_calls;
    found->seconds += op.seconds;
    found->read_bytes += op.read_bytes;
    found->macs += op.macs;
  }
}

void add_step(BenchRun& run, const StepTime& step) {
  ++run.num_steps;
  run.read_bytes += step.weight_bytes + step.kv_bytes;
  run.linear_macs += step.linear_macs;
  run.outside_seconds -= std::chrono::duration<double>(step.end - step.start).count();
  add_ops(run.ops, step.ops);
}

// The steps that a single sequence's prompt took. Its last one ends with the logits.
Result<BenchRun> prefill_run(const std::vector<StepTime>& steps, int64_t prompt_tokens) {
  BenchRun run;
  run.tokens = static_cast<double>(prompt_tokens);
  int64_t rows = 0;
  for (const StepTime& step : steps) {
    add_step(run, step);
    rows += step.num_rows;
    if (rows < prompt_tokens) continue;
    run.seconds = std::chrono::duration<double>(step.end - steps.front().start).count();
    run.outside_seconds += run.seconds;
    return run;
  }
  return unavailable("the prompt did not run to its end");
}

// Stretches of `decode_tokens` steps in which every sequence decoded, each measured from its first
// step's start to the start of the step after its last.
Result<std::vector<BenchRun>> decode_runs(const std::vector<StepTime>& steps,
                                          const BenchScenario& scenario) {
  const auto is_full = [&](const StepTime& step) {
    return step.is_decode() && step.num_windows == scenario.sequences;
  };
  std::vector<BenchRun> runs;
  auto at = std::find_if(steps.begin(), steps.end(), is_full);
  const auto begin = at - steps.begin() + kSettlingSteps;
  for (int64_t m = 0; m < scenario.measurements; ++m) {
    const int64_t first = begin + m * scenario.decode_tokens;
    const int64_t last = first + scenario.decode_tokens;  // the step after
    if (last >= static_cast<int64_t>(steps.size()))
      return unavailable("%zu steps ran, expected more than %ld", steps.size(), long{last});
    BenchRun run;
    run.tokens = static_cast<double>(scenario.decode_tokens * scenario.sequences);
    for (int64_t i = first; i < last; ++i) {
      if (!is_full(steps[static_cast<size_t>(i)]))
        return unavailable("a sequence ended before the measurement did");
      add_step(run, steps[static_cast<size_t>(i)]);
    }
    run.seconds =
        seconds_between(steps[static_cast<size_t>(first)], steps[static_cast<size_t>(last)]);
    run.outside_seconds += run.seconds;
    runs.push_back(std::move(run));
  }
  return runs;
}

BenchResult& result_of(const BenchCase& what, std::vector<BenchResult>& results) {
  for (BenchResult& result : results)
    if (result.what == what) return result;
  results.push_back({what, {}});
  return results.back();
}

double percent_of(double figure, double ceiling) {
  return ceiling > 0 ? 100 * figure / ceiling : 0;
}

}  // namespace

const char* work_name(BenchWork work) { return work == BenchWork::kPrefill ? "prefill" : "decode"; }

double median(std::vector<double> values) {
  INVAR_CHECK(!values.empty(), "median of nothing");
  std::sort(values.begin(), values.end());
  const size_t n = values.size();
  return n % 2 == 1 ? values[n / 2] : (values[n / 2 - 1] + values[n / 2]) / 2;
}

double BenchRun::read_percent() const { return percent_of(read_bytes / seconds, ceilings.read); }
double BenchRun::dot_percent() const {
  return percent_of(2 * linear_macs / seconds, ceilings.dots);
}

double BenchResult::median(double (BenchRun::*figure)() const) const {
  std::vector<double> values;
  for (const BenchRun& run : runs) values.push_back((run.*figure)());
  return cli::median(std::move(values));
}

double BenchResult::low() const {
  double low = runs.front().tokens_per_second();
  for (const BenchRun& run : runs) low = std::min(low, run.tokens_per_second());
  return low;
}

double BenchResult::high() const {
  double high = 0;
  for (const BenchRun& run : runs) high = std::max(high, run.tokens_per_second());
  return high;
}

int64_t positions_needed(const BenchScenario& scenario, int64_t prefill_chunk) {
  return scenario.prompt_tokens + events_needed(scenario) +
         steps_before_all_decode(scenario, prefill_chunk);
}

Result<std::vector<StepTime>> BenchRunner::run_steps(const BenchScenario& scenario) {
  timed_.take_steps();
  std::vector<std::unique_ptr<TokenStream>> streams;
  for (int i = 0; i < scenario.sequences; ++i) {
    GenerationRequest request;
    request.prompt_ids =
        random_ids(scenario.prompt_tokens, engine_.description().vocab_size, ++num_prompts_);
    request.max_tokens =
        events_needed(scenario) + steps_before_all_decode(scenario, prefill_chunk_);
    request.ignore_end = true;
    INVAR_TRY(auto stream, engine_.submit(request));
    streams.push_back(std::move(stream));
  }
  // The last one to come is the last one to decode: we wait for it only. Others are ahead, so that
  // reading an event of each never waits, and no queue fills up.
  bool ended = false;
  for (int64_t event = 0; event < events_needed(scenario) && !ended; ++event)
    for (auto stream = streams.rbegin(); stream != streams.rend(); ++stream)
      ended |= !(*stream)->next();
  for (const auto& stream : streams) {
    stream->cancel();
    while (stream->next()) {
    }
    if (stream->result().finish_reason == FinishReason::kError) return stream->result().error;
  }
  return timed_.take_steps();
}

Result<void> BenchRunner::warm_up(const BenchScenario& scenario) {
  INVAR_TRY(const auto steps, run_steps(scenario));
  (void)steps;
  return {};
}

Result<void> BenchRunner::run(const BenchScenario& scenario, std::vector<BenchResult>& results) {
  const Ceilings before = probe_.measure();
  INVAR_TRY(const std::vector<StepTime> steps, run_steps(scenario));
  const Ceilings ceilings = mean(before, probe_.measure());
  if (scenario.sequences == 1 && scenario.prompt_tokens > 1) {
    INVAR_TRY(BenchRun run, prefill_run(steps, scenario.prompt_tokens));
    run.ceilings = ceilings;
    result_of({BenchWork::kPrefill, scenario.prompt_tokens, 0, 1}, results)
        .runs.push_back(std::move(run));
  }
  if (scenario.decode_tokens == 0) return {};
  const int64_t depth = scenario.prompt_tokens > 1 ? scenario.prompt_tokens : 0;
  INVAR_TRY(std::vector<BenchRun> runs, decode_runs(steps, scenario));
  for (BenchRun& run : runs) {
    run.ceilings = ceilings;
    result_of({BenchWork::kDecode, scenario.decode_tokens, depth, scenario.sequences}, results)
        .runs.push_back(std::move(run));
  }
  return {};
}

}  // namespace invar::cli
