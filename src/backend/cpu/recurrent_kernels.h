// The vector kernels behind recurrent.cc, as one instruction set offers them. The arithmetic stands
// in recurrent_inl.h (states) and recurrent_rows_inl.h (rows).
#pragma once

#include <cstdint>

namespace invar::cpu {

// Columns of a head's state, rounded up to whole vectors; a kernel works on two vectors at a time.
inline constexpr int kStateBlock = 32;
constexpr int64_t padded_columns(int64_t value_dim) { return (value_dim + 15) / 16 * 16; }

// Rows of one sequence, in order, that one head's state goes through. Row t of a pointer with a
// stride begins t strides behind it.
struct StateRows {
  float* state = nullptr;  // blocks as in state_cache.h
  int64_t key_dim = 0, value_dim = 0, num_rows = 0;
  const float* key = nullptr;  // [key_dim]; ssd: B
  int64_t key_stride = 0;
  const float* query = nullptr;  // [key_dim]; ssd: C
  int64_t query_stride = 0;
  const float* value = nullptr;  // [value_dim]; ssd: x
  int64_t value_stride = 0;
  float* out = nullptr;  // [value_dim]
  int64_t out_stride = 0;
  const float* keep = nullptr;  // a row's factor of the state before it
  const float* gain = nullptr;  // beta; ssd: dt
  float skip = 0;               // ssd: D
  const float* next = nullptr;  // the state that this thread will need after this one, or null
};

// The gates of one head for some rows; keep and gain [num_rows] are written.
struct StateGates {
  float* keep = nullptr;
  float* gain = nullptr;
  int64_t num_rows = 0;
  const float* step = nullptr;  // [num_rows]: a or dt
  const float* beta = nullptr;  // [num_rows]: b; ssd: null
  float decay = 0, dt_bias = 0;
  float dt_min = 0, dt_max = 0;  // ssd; dt_max 0: no clamp
};

struct GatedNormGroup {
  float* y = nullptr;  // may be x
  const float* x = nullptr;
  const float* z = nullptr;
  const float* weight = nullptr;
  int64_t count = 0;
  float eps = 0;
  bool gate_first = false;
  bool sigmoid = false;
};

struct RecurrentKernels {
  void (*gated_delta)(const StateRows& rows);
  void (*delta_gates)(const StateGates& gates);
  void (*ssd)(const StateRows& rows);
  void (*ssd_gates)(const StateGates& gates);
  // y = x * (scale / sqrt(sum x^2 + 1e-6))
  void (*unit)(float* y, const float* x, int64_t count, float scale);
  // y[c] = silu(bias[c] + sum over taps j of weight[j * stride + c] * x[j][c]); bias may be null.
  void (*short_conv)(float* y, const float* const* x, int num_taps, const float* weight,
                     int64_t weight_stride, const float* bias, int64_t count);
  void (*gated_norm)(const GatedNormGroup& group);
  void (*sigmoid_gate)(float* x, const float* gate, int64_t count);
  void (*relu2)(float* x, int64_t count);
};

}  // namespace invar::cpu
