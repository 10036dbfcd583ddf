// What `invar profile` measures: steps of the real engine in which n sequences decode, with each of
// two settings of the backend in turn, step by step. Knows no flags and prints nothing.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "backend/timed_backend.h"
#include "backend/tunable.h"
#include "invar/invar.h"

namespace invar::cli {

// One kind and shape of operation, all its calls in a step.
struct ProfiledOp {
  OpKind kind = OpKind::kLinear;
  int64_t num_rows = 0, num_cols = 0;
  double seconds = 0;  // of the quickest step
  int num_calls = 0;
};

// Steps with so many rows under one setting.
struct ProfilePoint {
  int rows = 0;
  double seconds = 0;  // of the quickest step, from its start to the next one's
  std::vector<ProfiledOp> ops;
};

// Two settings' steps, by number of rows.
struct ProfilePass {
  std::vector<ProfilePoint> settings[2];  // ascending rows
};

struct ProfileEffort {
  int rounds = 3;  // over all row counts
  int steps = 4;   // of each setting in a round
};

class ProfileRunner {
 public:
  // All outlive the runner. `timed`: the engine's backend, with time_ops; `tunable`: the one in it.
  ProfileRunner(Engine& engine, TimedBackend& timed, Tunable& tunable)
      : engine_(engine), timed_(timed), tunable_(tunable) {}

  using OnRound = std::function<void(int done, int total)>;
  Result<ProfilePass> measure(const std::vector<int>& row_counts,
                              const std::vector<KernelCrossover>& first,
                              const std::vector<KernelCrossover>& second,
                              const ProfileEffort& effort, const OnRound& on_round);

 private:
  Result<std::vector<StepTime>> run_steps(int rows, int num_steps);

  Engine& engine_;
  TimedBackend& timed_;
  Tunable& tunable_;
  uint64_t num_prompts_ = 0;
};

// The operation of a point that is of the same kind and shape as `op`; nullptr: there is none.
const ProfiledOp* find_op(const ProfilePoint& point, const ProfiledOp& op);

// The matrices that appear in a pass: those whose kernels have a crossover.
std::vector<KernelCrossover> shapes_of(const ProfilePass& pass);

// From how many rows on the second setting (all matrices unpacked) is the better one, by the least
// sum of ratios to the better side. A shape that never gains has `never`.
std::vector<KernelCrossover> find_crossovers(const ProfilePass& pass, int never);

// Where total tokens a second fall from one point to the next by more than `tolerance` (0.02), and
// the operation that lost most.
struct Fall {
  int from_rows = 0, to_rows = 0;
  double percent = 0;
  ProfiledOp op;
};
std::vector<Fall> find_falls(const std::vector<ProfilePoint>& points, double tolerance);

inline double tokens_per_second(const ProfilePoint& point) { return point.rows / point.seconds; }

}  // namespace invar::cli
