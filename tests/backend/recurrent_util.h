// Shared by the tests of recurrent ops: random sequences, and running one through any backend's ops
// in whatever windows, slots and company.
#pragma once

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "backend/cpu/recurrent.h"
#include "backend/cpu_ops_util.h"
#include "backend/recurrent_ops.h"
#include "backend/reference/reference_recurrent.h"

namespace invar::test {

using cpu::random_floats;
using cpu::same_bits;
using cpu::tensor_of;

// The ops of one backend with the threads they run on.
struct Ops {
  std::string name;
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<RecurrentOps> ops;

  RecurrentOps* operator->() const { return ops.get(); }
};

inline Ops reference_ops() {
  Ops ops{"reference", std::make_unique<ThreadPool>(1), nullptr};
  ops.ops = make_reference_recurrent_ops(*ops.pool);
  return ops;
}
inline Ops cpu_ops(cpu::Isa isa = cpu::best_isa(), int num_threads = 1) {
  Ops ops{cpu::isa_name(isa), std::make_unique<ThreadPool>(num_threads), nullptr};
  ops.ops = cpu::make_recurrent_ops(*ops.pool, isa);
  return ops;
}
inline std::vector<Ops> all_ops() {
  std::vector<Ops> all;
  all.push_back(reference_ops());
  for (cpu::Isa isa : cpu::testable_isas()) all.push_back(cpu_ops(isa));
  return all;
}

inline std::unique_ptr<StateCache> make_states(const Ops& ops,
                                               std::vector<RecurrentLayerShape> layers,
                                               int num_slots) {
  return std::move(ops->make_state_cache(layers, num_slots)).value();
}

// One column group of a sequence's input: [num_rows][num_cols].
struct Input {
  int64_t num_cols = 0;
  std::vector<float> values;
};
inline Input random_input(int64_t num_rows, int64_t num_cols, uint32_t seed, float scale = 1) {
  return {num_cols, random_floats(static_cast<size_t>(num_rows * num_cols), seed, scale)};
}

// How a sequence is run.
struct Way {
  std::vector<int64_t> cuts = {};  // lengths of the windows, over and over; empty: one window
  int slot = 0;
  bool neighbours = false;  // windows of inf and NaN beside ours, in other slots
  bool garbage = false;     // our slot, too, held inf and NaN before
};
inline constexpr int kNumSlots = 4;

// What an op does for the windows of one step: y and the inputs have the step's rows.
using Step =
    std::function<void(const std::vector<Tensor>& inputs, Tensor y, std::span<const Window>)>;

// Runs the rows from `start` on and returns all of y.
inline std::vector<float> run_sequence(const std::vector<Input>& inputs, int64_t y_cols,
                                       const Way& way, const Step& step, int64_t start = 0) {
  const int64_t num_rows = static_cast<int64_t>(inputs[0].values.size()) / inputs[0].num_cols;
  const int64_t noise = way.neighbours ? 3 : 0;
  const auto spoiled = [](size_t i) {
    return i % 3 == 0 ? cpu::kNan : i % 3 == 1 ? cpu::kInf : -cpu::kInf;
  };
  const auto call = [&](int64_t first, int64_t count, bool spoil) {
    std::vector<std::vector<float>> memory;
    std::vector<Tensor> tensors;
    for (const Input& input : inputs) {
      std::vector<float>& rows =
          memory.emplace_back(static_cast<size_t>((count + 2 * noise) * input.num_cols));
      for (size_t i = 0; i < rows.size(); ++i) rows[i] = spoiled(i);
      if (!spoil)
        std::copy_n(input.values.begin() + first * input.num_cols, count * input.num_cols,
                    rows.begin() + noise * input.num_cols);
      tensors.push_back(tensor_of(rows, input.num_cols));
    }
    std::vector<float> y(static_cast<size_t>((count + 2 * noise) * y_cols), -7.0f);
    const auto other = [&](int i) { return (way.slot + i) % kNumSlots; };
    std::vector<Window> windows;
    if (noise > 0) windows.push_back({0, noise, 0, {}, other(1)});
    windows.push_back({noise, count, first, {}, way.slot});
    if (noise > 0) windows.push_back({noise + count, noise, 7, {}, other(2)});
    step(tensors, tensor_of(y, y_cols), windows);
    return std::vector<float>(y.begin() + noise * y_cols, y.begin() + (noise + count) * y_cols);
  };
  if (way.garbage) call(0, 5, true);
  std::vector<float> result;
  size_t next_cut = 0;
  for (int64_t row = start; row < num_rows;) {
    const int64_t cut = way.cuts.empty() ? num_rows : way.cuts[next_cut++ % way.cuts.size()];
    const int64_t count = std::min(cut, num_rows - row);
    const std::vector<float> y = call(row, count, false);
    result.insert(result.end(), y.begin(), y.end());
    row += count;
  }
  return result;
}

// ---- Gated DeltaNet

struct DeltaCase {
  int num_key_heads = 2, num_value_heads = 4, key_dim = 16, value_dim = 16;
  HeadOrder order = HeadOrder::kGrouped;
  std::vector<float> decay, dt_bias;
  std::vector<Input> inputs;  // q, k, v, a, b

  DeltaCase(int key_heads, int value_heads, int keys, int values, int64_t num_rows, uint32_t seed,
            HeadOrder head_order = HeadOrder::kGrouped)
      : num_key_heads(key_heads),
        num_value_heads(value_heads),
        key_dim(keys),
        value_dim(values),
        order(head_order) {
    for (int h = 0; h < value_heads; ++h) {
      decay.push_back(-0.05f * static_cast<float>(1 + h * 7 % 16));
      dt_bias.push_back(0.25f * static_cast<float>(h % 5) - 0.5f);
    }
    inputs = {random_input(num_rows, int64_t{key_heads} * keys, seed),
              random_input(num_rows, int64_t{key_heads} * keys, seed + 1),
              random_input(num_rows, int64_t{value_heads} * values, seed + 2),
              random_input(num_rows, value_heads, seed + 3, 2),
              random_input(num_rows, value_heads, seed + 4, 2)};
  }
  int64_t y_cols() const { return int64_t{num_value_heads} * value_dim; }
  std::vector<RecurrentLayerShape> layers() const {  // ours is the second
    return {{3, 2, 1, 2, 3}, {0, 0, num_value_heads, key_dim, value_dim}};
  }
  Step step(const Ops& ops, StateCache& states) const {
    return [this, &ops, &states](const std::vector<Tensor>& in, Tensor y,
                                 std::span<const Window> windows) {
      const GatedDeltaArgs args{1,         num_key_heads, num_value_heads, key_dim,
                                value_dim, order,         decay,           dt_bias};
      ops->gated_delta(y, in[0], in[1], in[2], in[3], in[4], windows, states, args);
    };
  }
  std::vector<float> run(const Ops& ops, const Way& way = {}) const {
    const auto states = make_states(ops, layers(), kNumSlots);
    return run_sequence(inputs, y_cols(), way, step(ops, *states));
  }
};

// ---- Mamba2

struct SsdCase {
  int num_heads = 4, head_dim = 16, num_groups = 2, state_size = 16;
  float dt_min = 0, dt_max = 0;
  std::vector<float> decay, dt_bias, skip;
  std::vector<Input> inputs;  // x, B, C, dt

  SsdCase(int heads, int head_size, int groups, int states, int64_t num_rows, uint32_t seed)
      : num_heads(heads), head_dim(head_size), num_groups(groups), state_size(states) {
    for (int h = 0; h < heads; ++h) {
      decay.push_back(-0.05f * static_cast<float>(1 + h * 7 % 16));
      dt_bias.push_back(0.25f * static_cast<float>(h % 5) - 0.5f);
      skip.push_back(1.0f - 0.3f * static_cast<float>(h % 4));
    }
    inputs = {random_input(num_rows, int64_t{heads} * head_size, seed),
              random_input(num_rows, int64_t{groups} * states, seed + 1),
              random_input(num_rows, int64_t{groups} * states, seed + 2),
              random_input(num_rows, heads, seed + 3, 2)};
  }
  int64_t y_cols() const { return int64_t{num_heads} * head_dim; }
  std::vector<RecurrentLayerShape> layers() const {
    return {{3, 2, 1, 2, 3}, {0, 0, num_heads, state_size, head_dim}};
  }
  Step step(const Ops& ops, StateCache& states) const {
    return [this, &ops, &states](const std::vector<Tensor>& in, Tensor y,
                                 std::span<const Window> windows) {
      const SsdArgs args{1,     num_heads, head_dim, num_groups, state_size,
                         decay, dt_bias,   skip,     dt_min,     dt_max};
      ops->ssd(y, in[0], in[1], in[2], in[3], windows, states, args);
    };
  }
  std::vector<float> run(const Ops& ops, const Way& way = {}) const {
    const auto states = make_states(ops, layers(), kNumSlots);
    return run_sequence(inputs, y_cols(), way, step(ops, *states));
  }
};

// ---- Short convolution

struct ConvCase {
  int64_t num_channels = 0;
  int num_taps = 4;
  std::vector<float> weight, bias;
  std::vector<Input> inputs;  // x

  ConvCase(int64_t channels, int taps, bool with_bias, int64_t num_rows, uint32_t seed)
      : num_channels(channels), num_taps(taps) {
    weight = random_floats(static_cast<size_t>(taps * channels), seed + 1, 0.5f);
    if (with_bias) bias = random_floats(static_cast<size_t>(channels), seed + 2);
    inputs = {random_input(num_rows, channels, seed)};
  }
  std::vector<RecurrentLayerShape> layers() const {
    return {{3, 2, 1, 2, 3}, {static_cast<int>(num_channels), num_taps, 1, 2, 3}};
  }
  Step step(const Ops& ops, StateCache& states) const {
    return [this, &ops, &states](const std::vector<Tensor>& in, Tensor y,
                                 std::span<const Window> windows) {
      ops->short_conv(y, in[0], weight, bias, windows, states, 1);
    };
  }
  std::vector<float> run(const Ops& ops, const Way& way = {}) const {
    const auto states = make_states(ops, layers(), kNumSlots);
    return run_sequence(inputs, num_channels, way, step(ops, *states));
  }
};

// ---- Comparison

// The largest difference, relative to the largest value of the same `run` of columns.
inline double worst_error(const std::vector<float>& got, const std::vector<double>& want,
                          size_t run) {
  EXPECT_EQ(got.size(), want.size());
  double worst = 0;
  for (size_t first = 0; first < want.size(); first += run) {
    double largest = 1e-30, error = 0;
    for (size_t i = first; i < first + run; ++i) {
      largest = std::max(largest, std::abs(want[i]));
      const double difference = std::abs(want[i] - static_cast<double>(got[i]));
      error = std::max(error, difference <= difference ? difference : 1e30);  // NaN
    }
    worst = std::max(worst, error / largest);
  }
  return worst;
}
inline double worst_error(const std::vector<float>& got, const std::vector<float>& want,
                          size_t run) {
  return worst_error(got, std::vector<double>(want.begin(), want.end()), run);
}

}  // namespace invar::test
