// Recurrent ops of the reference and the cpu backend against numbers that were found another way:
// closed sums in double in place of the recurrence, and small cases by hand that each of the known
// mistakes (tap order, sign of the decay, order of heads, gate before or after the norm) would
// miss.
#include <cmath>

#include "backend/recurrent_util.h"

namespace invar::test {
namespace {

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }
double softplus(double x) { return std::log1p(std::exp(x)); }

// The gated delta rule without a recurrence over rows (specs/qwen3_5.md section 6.1, the whole
// sequence as one chunk from a zero state): with G_i the sum of log decays up to row i,
//   (I + M) U = diag(beta) V,  M_ij = beta_i (k_i . k_j) exp(G_i - G_j) for j < i
//   o_i = sum over j <= i of (q_i . k_j) exp(G_i - G_j) U_j
std::vector<double> delta_as_matrices(const DeltaCase& c) {
  const auto at = [&](int input, int64_t row, int64_t column) {
    const Input& in = c.inputs[static_cast<size_t>(input)];
    return static_cast<double>(in.values[static_cast<size_t>(row * in.num_cols + column)]);
  };
  const int64_t rows = static_cast<int64_t>(c.inputs[3].values.size()) / c.num_value_heads;
  std::vector<double> y(static_cast<size_t>(rows * c.y_cols()));
  for (int head = 0; head < c.num_value_heads; ++head) {
    const int key_head = c.order == HeadOrder::kTiled ? head % c.num_key_heads
                                                      : head * c.num_key_heads / c.num_value_heads;
    const auto norm = [&](int input, int64_t row) {
      double sum = 1e-6;
      for (int i = 0; i < c.key_dim; ++i)
        sum += std::pow(at(input, row, key_head * c.key_dim + i), 2);
      return std::sqrt(sum);
    };
    const auto dot = [&](int a, int64_t i, int64_t j) {  // of input a's row i with k's row j
      double sum = 0;
      for (int d = 0; d < c.key_dim; ++d)
        sum += at(a, i, key_head * c.key_dim + d) * at(1, j, key_head * c.key_dim + d);
      return sum / norm(a, i) / norm(1, j);
    };
    const auto h = static_cast<size_t>(head);
    std::vector<double> log_decay;
    double total = 0;
    for (int64_t i = 0; i < rows; ++i)
      log_decay.push_back(total += static_cast<double>(c.decay[h]) *
                                   softplus(at(3, i, head) + static_cast<double>(c.dt_bias[h])));
    const auto kept = [&](int64_t i, int64_t j) {
      return std::exp(log_decay[static_cast<size_t>(i)] - log_decay[static_cast<size_t>(j)]);
    };
    std::vector<std::vector<double>> update;
    for (int64_t i = 0; i < rows; ++i) {
      const double beta = sigmoid(at(4, i, head));
      std::vector<double>& u = update.emplace_back(static_cast<size_t>(c.value_dim));
      for (int d = 0; d < c.value_dim; ++d)
        u[static_cast<size_t>(d)] = beta * at(2, i, head * c.value_dim + d);
      for (int64_t j = 0; j < i; ++j) {
        const double m = beta * dot(1, i, j) * kept(i, j);
        for (size_t d = 0; d < u.size(); ++d) u[d] -= m * update[static_cast<size_t>(j)][d];
      }
      double* const out = &y[static_cast<size_t>(i * c.y_cols() + head * c.value_dim)];
      for (int64_t j = 0; j <= i; ++j) {
        const double weight = dot(0, i, j) * kept(i, j) / std::sqrt(static_cast<double>(c.key_dim));
        for (size_t d = 0; d < u.size(); ++d) out[d] += weight * update[static_cast<size_t>(j)][d];
      }
    }
  }
  return y;
}

// Mamba2 as one sum (specs/nemotron_h.md section 3): with L_t the sum of dt A up to row t,
//   y_t = sum over s <= t of exp(L_t - L_s) (C_t . B_s) dt_s x_s + D x_t
std::vector<double> ssd_as_sum(const SsdCase& c) {
  const auto at = [&](int input, int64_t row, int64_t column) {
    const Input& in = c.inputs[static_cast<size_t>(input)];
    return static_cast<double>(in.values[static_cast<size_t>(row * in.num_cols + column)]);
  };
  const int64_t rows = static_cast<int64_t>(c.inputs[3].values.size()) / c.num_heads;
  std::vector<double> y(static_cast<size_t>(rows * c.y_cols()));
  for (int head = 0; head < c.num_heads; ++head) {
    const auto h = static_cast<size_t>(head);
    const int group = head * c.num_groups / c.num_heads;
    std::vector<double> step, log_decay;
    double total = 0;
    for (int64_t t = 0; t < rows; ++t) {
      double dt = softplus(at(3, t, head) + static_cast<double>(c.dt_bias[h]));
      if (c.dt_max > 0)
        dt = std::min(std::max(dt, static_cast<double>(c.dt_min)), static_cast<double>(c.dt_max));
      step.push_back(dt);
      log_decay.push_back(total += dt * static_cast<double>(c.decay[h]));
    }
    for (int64_t t = 0; t < rows; ++t) {
      double* const out = &y[static_cast<size_t>(t * c.y_cols() + head * c.head_dim)];
      for (int d = 0; d < c.head_dim; ++d)
        out[d] = static_cast<double>(c.skip[h]) * at(0, t, head * c.head_dim + d);
      for (int64_t s = 0; s <= t; ++s) {
        double dot = 0;
        for (int i = 0; i < c.state_size; ++i)
          dot += at(2, t, group * c.state_size + i) * at(1, s, group * c.state_size + i);
        const double weight =
            dot * step[static_cast<size_t>(s)] *
            std::exp(log_decay[static_cast<size_t>(t)] - log_decay[static_cast<size_t>(s)]);
        for (int d = 0; d < c.head_dim; ++d) out[d] += weight * at(0, s, head * c.head_dim + d);
      }
    }
  }
  return y;
}

// Relative to the largest value of a head's row. The reference rounds states only; the cpu backend
// also sums up to 128 keys in fp32. Found: 1.0e-6 and 4.9e-6.
double bound(const Ops& ops) { return ops.name == "reference" ? 2e-6 : 8e-6; }

TEST(GatedDelta, EqualsTheMatrixForm) {
  for (const DeltaCase& c :
       {DeltaCase(2, 4, 16, 16, 40, 1), DeltaCase(2, 4, 16, 16, 40, 1, HeadOrder::kTiled),
        DeltaCase(1, 3, 5, 12, 90, 2), DeltaCase(2, 2, 128, 128, 70, 3),
        DeltaCase(3, 6, 33, 40, 20, 4, HeadOrder::kTiled)}) {
    const std::vector<double> want = delta_as_matrices(c);
    for (const Ops& ops : all_ops())
      EXPECT_LT(worst_error(c.run(ops), want, static_cast<size_t>(c.value_dim)), bound(ops))
          << ops.name << " " << c.key_dim << " x " << c.value_dim;
  }
}

TEST(Ssd, EqualsTheSum) {
  SsdCase clamped(4, 16, 2, 16, 40, 1);
  clamped.dt_min = 0.3f;
  clamped.dt_max = 1.0f;
  for (const SsdCase& c : {SsdCase(4, 16, 2, 16, 40, 1), clamped, SsdCase(6, 12, 3, 5, 90, 2),
                           SsdCase(4, 64, 1, 128, 70, 3), SsdCase(2, 33, 2, 40, 20, 4)}) {
    const std::vector<double> want = ssd_as_sum(c);
    for (const Ops& ops : all_ops())
      EXPECT_LT(worst_error(c.run(ops), want, static_cast<size_t>(c.head_dim)), bound(ops))
          << ops.name << " " << c.head_dim << " x " << c.state_size;
  }
}

// One key dim, one value column: 2 sigmoid(0) = 1 of each value is taken up, and what is there
// fades by exp(-0.5 * softplus(0)) a row.
TEST(GatedDelta, ByHand) {
  const float decay[] = {-0.5f}, bias[] = {0};
  std::vector<float> q = {2, -3, 5}, k = {1, 4, -2}, v = {8, 6, -1}, a = {0, 0, 0}, b = {0, 0, 0};
  const double eps = 1e-6, alpha = std::exp(-0.5 * std::log(2.0));
  const auto unit = [&](double x) { return x / std::sqrt(x * x + eps); };
  std::vector<double> want;
  double s = 0;
  for (size_t t = 0; t < 3; ++t) {
    s *= alpha;
    s += unit(static_cast<double>(k[t])) * 0.5 *
         (static_cast<double>(v[t]) - s * unit(static_cast<double>(k[t])));
    want.push_back(s * unit(static_cast<double>(q[t])));
  }
  EXPECT_NEAR(want[0], 4.0, 1e-5);  // 0.5 * 8
  // 2.828 of it is left, half of what is missing to 6 is added, q turns the sign
  EXPECT_NEAR(want[1], -4.41421, 1e-5);
  for (const Ops& ops : all_ops()) {
    const auto states = make_states(ops, {{0, 0, 1, 1, 1}}, 1);
    std::vector<float> y(3);
    const Window windows[] = {{0, 3, 0, {}, 0}};
    ops->gated_delta(tensor_of(y, 1), tensor_of(q, 1), tensor_of(k, 1), tensor_of(v, 1),
                     tensor_of(a, 1), tensor_of(b, 1), windows, *states,
                     {0, 1, 1, 1, 1, HeadOrder::kGrouped, decay, bias});
    EXPECT_LT(worst_error(y, want, 1), 1e-6) << ops.name;
  }
}

// Four value heads over two key heads; queries of key head 1 are zero, so its value heads are.
TEST(GatedDelta, OrderOfHeads) {
  const std::vector<float> decay(4, -0.5f), bias(4, 0);
  std::vector<float> q = {1, 0}, k = {1, 1}, v = {1, 1, 1, 1}, gate(4, 0);
  for (const Ops& ops : all_ops()) {
    const auto met = [&](HeadOrder order) {
      const auto states = make_states(ops, {{0, 0, 4, 1, 1}}, 1);
      std::vector<float> y(4);
      const Window windows[] = {{0, 1, 0, {}, 0}};
      ops->gated_delta(tensor_of(y, 4), tensor_of(q, 2), tensor_of(k, 2), tensor_of(v, 4),
                       tensor_of(gate, 4), tensor_of(gate, 4), windows, *states,
                       {0, 2, 4, 1, 1, order, decay, bias});
      std::string heads;
      for (float value : y) heads += value > 0.4f ? '0' : value == 0 ? '1' : '?';
      return heads;
    };
    EXPECT_EQ(met(HeadOrder::kGrouped), "0011") << ops.name;
    EXPECT_EQ(met(HeadOrder::kTiled), "0101") << ops.name;
  }
}

// The last tap meets the row itself, the first the row three before.
TEST(ShortConv, ByHand) {
  for (const Ops& ops : all_ops()) {
    std::vector<float> x = {1, 10, 0, 0, 0, 0, 0, 0, 0, 0};          // [5 rows][2 channels]
    const std::vector<float> weight = {4, 40, 3, 30, 2, 20, 1, 10};  // [4 taps][2 channels]
    const std::vector<float> bias = {0.5f, -0.25f};
    const std::vector<double> want = {silu(1.5), silu(99.75),  silu(2.5), silu(199.75),
                                      silu(3.5), silu(299.75), silu(4.5), silu(399.75),
                                      silu(0.5), silu(-0.25)};
    for (int64_t chunk : {1, 2, 5}) {
      const auto states = make_states(ops, {{2, 4, 0, 0, 0}}, 1);
      std::vector<float> y(x.size());
      for (int64_t row = 0; row < 5; row += chunk) {
        const int64_t count = std::min<int64_t>(chunk, 5 - row);
        const Window windows[] = {{row, count, row, {}, 0}};
        ops->short_conv(tensor_of(y, 2), tensor_of(x, 2), weight, bias, windows, *states, 0);
      }
      EXPECT_LT(worst_error(y, want, 1), 1e-6) << ops.name << ", chunks of " << chunk;
    }
  }
}

TEST(ShortConv, EqualsTheDefinition) {
  for (const ConvCase& c : {ConvCase(40, 4, true, 30, 1), ConvCase(5, 2, false, 9, 2),
                            ConvCase(1100, 4, false, 6, 3), ConvCase(17, 1, true, 5, 4)}) {
    const auto rows = static_cast<int64_t>(c.inputs[0].values.size()) / c.num_channels;
    std::vector<double> want;
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t channel = 0; channel < c.num_channels; ++channel) {
        double sum = 0;
        for (int64_t age = 0; age < c.num_taps && age <= t; ++age)
          sum += static_cast<double>(c.weight[static_cast<size_t>(
                     (c.num_taps - 1 - age) * c.num_channels + channel)]) *
                 static_cast<double>(
                     c.inputs[0].values[static_cast<size_t>((t - age) * c.num_channels + channel)]);
        if (!c.bias.empty()) sum += static_cast<double>(c.bias[static_cast<size_t>(channel)]);
        want.push_back(silu(sum));
      }
    }
    for (const Ops& ops : all_ops())
      EXPECT_LT(worst_error(c.run(ops), want, static_cast<size_t>(c.num_channels)), 1e-6)
          << ops.name << " " << c.num_channels;
  }
}

// x = (3, 4 | 0, 10), z so that act(z) is known: both orders, groups of two, two forms of weight.
TEST(GatedNorm, ByHand) {
  const std::vector<float> own = {1, 2}, all = {1, 2, 10, 20};
  std::vector<float> x = {3, 4, 0, 10}, z = {1, -1, 2, 0.5f};
  const auto expect = [&](GateOrder order, bool sigmoid_gate, const std::vector<float>& weight) {
    std::vector<double> want(4);
    for (size_t first : {0, 2}) {
      const auto act = [&](size_t i) {
        const auto value = static_cast<double>(z[i]);
        return sigmoid_gate ? sigmoid(value) : silu(value);
      };
      const auto value = [&](size_t i) {
        return static_cast<double>(x[i]) * (order == GateOrder::kGateThenNorm ? act(i) : 1);
      };
      const double mean = (value(first) * value(first) + value(first + 1) * value(first + 1)) / 2;
      for (size_t i = first; i < first + 2; ++i)
        want[i] = value(i) / std::sqrt(mean + 0.25) *
                  static_cast<double>(weight[i % weight.size()]) *
                  (order == GateOrder::kNormThenGate ? act(i) : 1);
    }
    for (const Ops& ops : all_ops()) {
      for (bool in_place : {false, true}) {
        std::vector<float> source = x, y(4);
        ops->gated_norm(tensor_of(in_place ? source : y, 4), tensor_of(source, 4), tensor_of(z, 4),
                        weight, {2, 0.25f, order, sigmoid_gate});
        EXPECT_LT(worst_error(in_place ? source : y, want, 4), 5e-7) << ops.name;
      }
    }
  };
  for (GateOrder order : {GateOrder::kNormThenGate, GateOrder::kGateThenNorm})
    for (bool sigmoid_gate : {false, true})
      for (const std::vector<float>& weight : {own, all}) expect(order, sigmoid_gate, weight);
  // Norm first: (3, 4) has a mean square of 12.5.
  std::vector<float> y(4);
  reference_ops()->gated_norm(tensor_of(y, 4), tensor_of(x, 4), tensor_of(z, 4), own,
                              {2, 0, GateOrder::kNormThenGate, true});
  EXPECT_NEAR(static_cast<double>(y[0]), 3 / std::sqrt(12.5) * sigmoid(1), 1e-6);
  EXPECT_NEAR(static_cast<double>(y[3]), 10 / std::sqrt(50.0) * 2 * sigmoid(0.5), 1e-6);
}

TEST(Gates, ByHand) {
  for (const Ops& ops : all_ops()) {
    std::vector<float> x = {2, -2, 5, cpu::kInf}, gate = {0, 0, -200, 3};
    ops->sigmoid_gate(tensor_of(x, 4), tensor_of(gate, 4));
    EXPECT_EQ(x, (std::vector<float>{1, -1, 0, cpu::kInf})) << ops.name;
    std::vector<float> r = {3, -3, 0, 0.5f, cpu::kNan};
    ops->relu2(tensor_of(r, 5));
    EXPECT_TRUE(same_bits(r, {9, 0, 0, 0.25f, cpu::kNan})) << ops.name;
  }
}

}  // namespace
}  // namespace invar::test
