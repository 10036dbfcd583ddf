// What `invar bench` measures: prompts and replies of random ids through the real engine, timed
// step by step by a TimedBackend. Knows no flags and prints nothing.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "backend/timed_backend.h"
#include "bench_ceilings.h"
#include "invar/invar.h"

namespace invar::cli {

enum class BenchWork { kPrefill, kDecode };

// One line of the report.
struct BenchCase {
  BenchWork work = BenchWork::kDecode;
  int64_t tokens = 0;  // of each sequence
  int64_t depth = 0;   // positions that stand before them
  int sequences = 1;   // that decode together
  bool operator==(const BenchCase&) const = default;
};
const char* work_name(BenchWork work);  // "prefill", "decode"

// One measurement of a case: its steps, from the first one's start to the last one's end.
struct BenchRun {
  int num_steps = 0;
  double seconds = 0;
  double tokens = 0;           // of all sequences
  double read_bytes = 0;       // weights once a step, keys and values once a sequence and step
  double linear_macs = 0;      // multiply-adds with weights
  double outside_seconds = 0;  // between forward passes: sampling, scheduling, text
  std::vector<OpTime> ops;     // summed over the steps; empty unless operations are timed
  Ceilings ceilings;           // mean of those just before and just after

  double tokens_per_second() const { return tokens / seconds; }
  double bytes_per_token() const { return read_bytes / tokens; }
  // Of the ceilings; 0 where there is none.
  double read_percent() const;
  double dot_percent() const;
};

struct BenchResult {
  BenchCase what;
  std::vector<BenchRun> runs;
  double median(double (BenchRun::*figure)() const) const;
  double low() const;  // of tokens a second
  double high() const;
};

// Sequences that run together: each reads a prompt, then decodes.
struct BenchScenario {
  int64_t prompt_tokens = 1;
  int sequences = 1;
  int64_t decode_tokens = 0;  // of one measurement; 0: the prompt is what is measured
  int64_t measurements = 1;   // of the decode, one after another in the same sequences
};

// Positions a sequence of the scenario needs at most.
int64_t positions_needed(const BenchScenario& scenario, int64_t prefill_chunk);

class BenchRunner {
 public:
  // All outlive the runner. `timed` is the engine's backend.
  BenchRunner(Engine& engine, TimedBackend& timed, CeilingProbe& probe, int64_t prefill_chunk)
      : engine_(engine), timed_(timed), probe_(probe), prefill_chunk_(prefill_chunk) {}

  // Runs it once and appends what was measured to `results`, a result for each new case. The
  // prompt of a single sequence counts as a prefill of its own when it has more than one token.
  Result<void> run(const BenchScenario& scenario, std::vector<BenchResult>& results);
  // The same without a result: touches memory for the first time.
  Result<void> warm_up(const BenchScenario& scenario);

 private:
  Result<std::vector<StepTime>> run_steps(const BenchScenario& scenario);

  Engine& engine_;
  TimedBackend& timed_;
  CeilingProbe& probe_;
  const int64_t prefill_chunk_;
  uint64_t num_prompts_ = 0;  // each prompt has ids of its own, so that no cache can know it
};

double median(std::vector<double> values);

}  // namespace invar::cli
