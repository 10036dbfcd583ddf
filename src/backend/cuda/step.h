// A step as data: the ops that a model called between begin_step() and synchronize(), with tensors
// and arrays as numbers instead of addresses. Two decode steps of the same shape are equal, which
// is what lets one CUDA graph serve them all. cuda_backend.cc records, step_plan.cc decides what
// runs, step_runner.cc runs it.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "backend/cuda/attention.h"
#include "backend/cuda/epilogue.h"
#include "backend/cuda/packed.h"
#include "base/result.h"

namespace invar::cuda {

struct MatrixSegment {
  PackedMatrix matrix;
  int64_t first_row = 0;
};

// What an op made: rows one after another. What only a matrix reads is bf16, all else fp32.
struct StepBuffer {
  int num_rows = 0, num_cols = 0;
  OutputType type = OutputType::kF32;
  bool operator==(const StepBuffer&) const = default;
  size_t num_bytes() const {
    return static_cast<size_t>(num_rows) * static_cast<size_t>(num_cols) *
           (type == OutputType::kF32 ? 4 : 2);
  }
};

// All rows of a buffer, columns [first_col, first_col + num_cols).
struct StepTensor {
  int buffer = -1;  // -1: none
  int first_col = 0, num_cols = 0;
  bool operator==(const StepTensor&) const = default;
};

// Small integers that the host knows before a step: where they stand in the block that is copied to
// the device in front of it. Reserved sizes are rounded up where an array grows from step to step.
struct StepArray {
  size_t offset = 0, reserved_bytes = 0;
  bool operator==(const StepArray&) const = default;
};

enum class StepOpKind : uint8_t {
  kEmbed,
  kRmsNorm,
  kHeadRmsNorm,
  kLinear,
  kGatedLinear,
  kRope,
  kAttention,
  kGatherRows,
  kLmHead,
  kBestIds
};
const char* step_op_name(StepOpKind kind);

struct StepOp {
  StepOpKind kind = StepOpKind::kEmbed;
  StepTensor y, x;      // in place: the same
  StepTensor residual;  // rms_norm, linear
  StepTensor k, v;      // attention, whose q is x
  const std::vector<MatrixSegment>* matrix = nullptr;
  uint64_t matrix_id = 0;         // addresses are used again, numbers are not
  const float* vector = nullptr;  // norm weight or bias, on the device
  float value = 0;                // eps, softcap, scale of an embedding, magnitude of a rope
  GateActivation activation = GateActivation::kSilu;
  int head_dim = 0;
  const double* inv_freq = nullptr;  // rope, on the device
  int num_freqs = 0;
  int array = -1;                    // ids, positions or rows
  bool all_rows = false;             // gather_rows: every row in order
  const uint32_t* banned = nullptr;  // best_ids: a bit an id, on the device
  int num_ids = 0;
  // attention
  AttentionShape shape;
  void* pages = nullptr;
  int windows_array = -1, pages_array = -1, row_window_array = -1;
  int num_windows = 0, max_window_rows = 0, max_groups = 0;

  bool operator==(const StepOp&) const = default;
};

struct StepRecord {
  std::vector<StepOp> ops;
  std::vector<StepBuffer> buffers;
  std::vector<StepArray> arrays;
  bool operator==(const StepRecord&) const = default;

  void clear() {
    ops.clear();
    buffers.clear();
    arrays.clear();
  }
};

// What may be turned off or chosen; time only, never a bit. Named as in `--cuda-switches`.
struct StepSwitches {
  bool graph = true;             // CUDA graphs for steps that come again
  bool dependent = true;         // programmatic dependent launch
  bool norm_inside = true;       // rms_norm of one row in front of the product that reads it
  bool rope_inside = true;       // rope in attention, as it reads q and k
  bool reuse = true;             // buffers share memory when their lives do not overlap
  bool late = true;              // lin_decode lets the next kernel start once its input is there
  bool stream_attention = true;  // attention_stream.cu for long contexts
  bool token_attention = true;   // attention_token.cu for short ones
};
// "" or words with commas between: "no-graph,no-rope-inside". An unknown one is an error that lists
// the known.
Result<StepSwitches> parse_switches(std::string_view words);

}  // namespace invar::cuda
