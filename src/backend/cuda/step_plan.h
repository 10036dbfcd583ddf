// From a recorded step to what runs: which ops become one kernel, and where in the step's memory
// every buffer stands. No launch happens here. Nothing decided here changes a bit: the fused forms
// have those of the ops one by one (tests/cuda/*_test.cc).
#pragma once

#include <cstddef>
#include <vector>

#include "backend/cuda/step.h"

namespace invar::cuda {

// An op that runs, and what was fused into it.
struct PlannedOp {
  StepOp op;
  // linear, gated_linear, lm_head: op.x is what rms_norm read, and this is its weight.
  const float* norm_weight = nullptr;
  float norm_eps = 0;
  // attention: q and k come unrotated; cosines and sines are in this place.
  bool rotate = false;
  size_t rotation_offset = 0;
  bool make_rotation = false;  // by this op, in front of itself
  const double* inv_freq = nullptr;
  int num_freqs = 0;
  float magnitude = 0;
  int positions_array = -1;
  size_t workspace_offset = 0, workspace_bytes = 0;  // attention
};

struct StepPlan {
  std::vector<PlannedOp> ops;
  std::vector<size_t> offsets;  // of each buffer of the record, in the step's memory
  size_t num_bytes = 0;
  int max_groups = 0;  // most groups of keys that an attention of the step sees
};

// `as_recorded`: every op by itself and no memory used twice, so that the plan of a step that has
// grown begins with what was planned before: for steps run op by op.
StepPlan plan_step(const StepRecord& record, const StepSwitches& switches, bool as_recorded);

}  // namespace invar::cuda
