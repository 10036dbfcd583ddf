// Experts on the reference and on the cpu backend (every instruction set): whom a row chooses and
// with which weights, from cases worked out by hand; and the reference against sums over all
// experts in another form. The cpu backend's bits are cpu_moe_test.cc's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu_linear_oracle.h"
#include "backend/cpu_ops_util.h"
#include "backend/moe_ops.h"

namespace invar {
namespace {

using cpu::random_floats;
using cpu::tensor_of;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::vector<std::string> backends() {
  std::vector<std::string> names = {"reference"};
  for (cpu::Isa isa : cpu::testable_isas()) names.push_back(std::string("cpu_") + isa_name(isa));
  return names;
}

std::unique_ptr<Backend> make(const std::string& name) {
  BackendOptions options;
  options.num_threads = 2;
  if (name != "reference") options.isa = name.substr(4);
  return std::move(make_backend(name == "reference" ? name : "cpu", options)).value();
}

MatrixView view_of(const std::vector<float>& values, int64_t num_rows, int64_t num_cols) {
  MatrixView view;
  view.name = "test";
  view.num_rows = num_rows;
  view.num_cols = num_cols;
  view.data = reinterpret_cast<const uint8_t*>(values.data());
  view.row_bytes = num_cols * 4;
  return view;
}

class Moe : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<PackedWeight> pack(std::vector<MatrixView> parts, int num_experts,
                                     PartOrder order = PartOrder::kStacked,
                                     MatrixRole role = MatrixRole::kInner) {
    PackRequest request;
    request.parts = std::move(parts);
    request.num_experts = num_experts;
    request.order = order;
    request.role = role;
    auto packed = backend_->pack(request);
    EXPECT_TRUE(packed.ok());
    return *std::move(packed);
  }

  // The weights with which a row of these logits goes to each expert: expert e's output is 1 in
  // column e.
  std::vector<float> weights(std::vector<float> logits, MoeArgs args) {
    const auto num_experts = logits.size();
    args.num_experts = static_cast<int>(num_experts);
    args.activation = Activation::kRelu2;
    std::vector<float> one = {1}, columns(num_experts * num_experts);
    std::vector<MatrixView> up, down;
    for (size_t e = 0; e < num_experts; ++e) {
      columns[e * num_experts + e] = 1;
      up.push_back(view_of(one, 1, 1));
      down.push_back(view_of(columns, args.num_experts, 1));
      down.back().data += e * num_experts * 4;
    }
    std::vector<float> x = {1}, y(num_experts);
    backend_->moe_ops()->moe(tensor_of(y, args.num_experts), tensor_of(x, 1),
                             tensor_of(logits, args.num_experts), *pack(up, args.num_experts),
                             *pack(down, args.num_experts), args, Tensor{});
    return y;
  }

  void expect_weights(const std::vector<float>& logits, const MoeArgs& args,
                      const std::vector<double>& expected) {
    const std::vector<float> got = weights(logits, args);
    for (size_t e = 0; e < got.size(); ++e)
      EXPECT_NEAR(got[e], expected[e], 1e-6 * std::max(1.0, std::fabs(expected[e])))
          << "expert " << e;
  }

  std::unique_ptr<Backend> backend_ = make(GetParam());
};

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST_P(Moe, SoftmaxRunsOverAllExperts) {
  MoeArgs args;
  args.num_experts_per_tok = 2;
  args.norm_topk_prob = false;
  // exp: 1 2 4 1
  const float two = std::log(2.0f), four = std::log(4.0f);
  expect_weights({0, two, four, 0}, args, {0, 0.25, 0.5, 0});
  args.norm_topk_prob = true;
  expect_weights({0, two, four, 0}, args, {0, 1 / 3.0, 2 / 3.0, 0});
  args.routed_scaling_factor = 2.5f;
  expect_weights({0, two, four, 0}, args, {0, 2.5 / 3, 5 / 3.0, 0});
}

TEST_P(Moe, EqualScoresGoToTheLowerId) {
  MoeArgs args;
  args.num_experts_per_tok = 3;
  expect_weights({1, 1, 1, 1, 1}, args, {1 / 3.0, 1 / 3.0, 1 / 3.0, 0, 0});
  expect_weights({0, 1, 0, 1, 0, 1, 1}, args, {0, 1 / 3.0, 0, 1 / 3.0, 0, 1 / 3.0, 0});
  // Sigmoids of 40 and 50 are 1 in fp32, in double almost: the logits decide.
  args.score = RouterScore::kSigmoid;
  args.num_experts_per_tok = 1;
  expect_weights({40, 50, 40}, args, {0, 1, 0});
}

TEST_P(Moe, CorrectionBiasIsForTheChoiceAlone) {
  MoeArgs args;
  args.num_experts_per_tok = 2;
  args.score = RouterScore::kSigmoid;
  args.norm_topk_prob = false;
  const std::vector<float> bias = {0, 0, -0.6f, 0.6f};
  args.correction_bias = bias;
  // Corrected: .5 .62 .13 .87
  expect_weights({0, 0.5f, 1, -1}, args, {0, sigmoid(0.5), 0, sigmoid(-1)});
  args.norm_topk_prob = true;
  const double sum = sigmoid(0.5) + sigmoid(-1);
  expect_weights({0, 0.5f, 1, -1}, args, {0, sigmoid(0.5) / sum, 0, sigmoid(-1) / sum});
  args.norm_eps = 0.25f;
  expect_weights({0, 0.5f, 1, -1}, args,
                 {0, sigmoid(0.5) / (sum + 0.25), 0, sigmoid(-1) / (sum + 0.25)});
}

TEST_P(Moe, GroupsAreJudgedByTheirTwoBest) {
  MoeArgs args;
  args.num_experts_per_tok = 2;
  args.score = RouterScore::kSigmoid;
  args.norm_topk_prob = false;
  args.n_group = 3;
  args.topk_group = 1;
  // The first group has the best expert, the second the best two.
  expect_weights({3, -9, -9, 1, 1.5f, -9, 0, 0, 0}, args,
                 {0, 0, 0, sigmoid(1), sigmoid(1.5), 0, 0, 0, 0});
  args.topk_group = 2;
  expect_weights({3, -9, -9, 1, 1.5f, -9, 0, 0, 0}, args,
                 {0, 0, 0, sigmoid(1), sigmoid(1.5), 0, 0, 0, 0});  // .95 + 0 < .5 + .5
  args.num_experts_per_tok = 3;
  expect_weights({5, -9, -9, 1, 1.5f, -9, -1, -1, -1}, args,
                 {sigmoid(5), 0, 0, sigmoid(1), sigmoid(1.5), 0, 0, 0, 0});
  // The bias counts for groups as well; of equal groups the first.
  const std::vector<float> bias = {0, 0, 0, 0, 0, 0, 0, 2, 2};
  args.correction_bias = bias;
  args.topk_group = 1;
  expect_weights({3, -9, -9, 1, 1.5f, -9, 0, 0.25f, 0}, args,
                 {0, 0, 0, 0, 0, 0, sigmoid(0), sigmoid(0.25), sigmoid(0)});
  args.correction_bias = {};
  args.num_experts_per_tok = 1;
  expect_weights({1, 2, -9, 2, 1, -9, -9, -9, -9}, args, {0, sigmoid(2), 0, 0, 0, 0, 0, 0, 0});
  args.n_group = 9;  // groups of one expert
  args.topk_group = 2;
  expect_weights({1, 2, -9, 2, 1, -9, -9, -9, -9}, args, {0, sigmoid(2), 0, 0, 0, 0, 0, 0, 0});
}

TEST_P(Moe, ExtremeLogits) {
  MoeArgs args;
  args.num_experts_per_tok = 2;
  expect_weights({1000, -1000, 0, -kInf}, args, {1, 0, 0, 0});
  args.norm_eps = 1e-20f;
  args.score = RouterScore::kSigmoid;
  expect_weights({-1000, -2000, -1000, -kInf}, args, {0, 0, 0, 0});
  for (RouterScore score : {RouterScore::kSoftmax, RouterScore::kSigmoid}) {
    args.score = score;
    for (float y : weights({1, 2, std::nanf(""), 0}, args)) EXPECT_TRUE(std::isnan(y));
  }
}

TEST_P(Moe, AddsAGatedExpert) {
  for (int64_t num_cols : {1, 16, 37}) {
    std::vector<float> y = random_floats(static_cast<size_t>(3 * num_cols), 1), before = y;
    std::vector<float> x = random_floats(y.size(), 2), gate = {-0.5f, 100, -100};
    backend_->moe_ops()->add_gated(tensor_of(y, num_cols), tensor_of(x, num_cols),
                                   tensor_of(gate, 1));
    for (size_t i = 0; i < y.size(); ++i)
      EXPECT_NEAR(y[i], before[i] + sigmoid(gate[i / static_cast<size_t>(num_cols)]) * x[i], 1e-6);
  }
}

INSTANTIATE_TEST_SUITE_P(Backends, Moe, testing::ValuesIn(backends()),
                         [](const auto& name) { return name.param; });

// y[t] = sum over all experts of gate[t][e] * f_e(x[t]), with a dense matrix of gates that is zero
// for whom was not chosen; found by taking the best one away until enough are found.
struct DenseMoe {
  std::vector<std::vector<float>> gate, up, down;  // by expert; no gate: relu2
  int64_t hidden = 0, inner = 0;

  std::vector<double> gates(const float* logits, const MoeArgs& args) const {
    const auto num_experts = static_cast<size_t>(args.num_experts);
    std::vector<double> scores(num_experts), choice, gates(num_experts, 0.0);
    double sum = 0;
    for (size_t e = 0; e < num_experts; ++e) sum += std::exp(double{logits[e]});
    for (size_t e = 0; e < num_experts; ++e)
      scores[e] = args.score == RouterScore::kSoftmax ? std::exp(double{logits[e]}) / sum
                                                      : sigmoid(logits[e]);
    choice = scores;
    for (size_t e = 0; e < args.correction_bias.size(); ++e) choice[e] += args.correction_bias[e];
    // Groups that lose are pulled down by 100, one after the other.
    const size_t group_size = num_experts / static_cast<size_t>(args.n_group);
    std::vector<double> groups(static_cast<size_t>(args.n_group));
    for (size_t g = 0; g < groups.size(); ++g) {
      for (size_t a = g * group_size; a < (g + 1) * group_size; ++a)
        for (size_t b = a + 1; b < (g + 1) * group_size; ++b)
          groups[g] = std::max(groups[g], choice[a] + choice[b]);
    }
    for (int lost = args.n_group - args.topk_group; lost > 0; --lost) {
      const auto worst =
          static_cast<size_t>(std::min_element(groups.begin(), groups.end()) - groups.begin());
      groups[worst] = 1e9;
      for (size_t e = worst * group_size; e < (worst + 1) * group_size; ++e) choice[e] -= 100;
    }
    double total = 0;
    for (int k = 0; k < args.num_experts_per_tok; ++k) {
      const auto best =
          static_cast<size_t>(std::max_element(choice.begin(), choice.end()) - choice.begin());
      choice[best] = -1e9;
      total += gates[best] = scores[best];
    }
    for (double& g : gates)
      g *= args.routed_scaling_factor / (args.norm_topk_prob ? total + args.norm_eps : 1.0);
    return gates;
  }

  static double dot(const std::vector<float>& w, int64_t row, const double* x, int64_t count) {
    double sum = 0;
    for (int64_t k = count - 1; k >= 0; --k) sum += x[k] * w[static_cast<size_t>(row * count + k)];
    return sum;
  }

  std::vector<double> operator()(const float* x, const float* logits, const MoeArgs& args) const {
    const std::vector<double> input(x, x + hidden), g = gates(logits, args);
    std::vector<double> y(static_cast<size_t>(hidden), 0.0);
    for (size_t e = 0; e < g.size(); ++e) {
      if (g[e] == 0) continue;
      std::vector<double> act;
      for (int64_t i = 0; i < inner; ++i) {
        const double u = dot(up[e], i, input.data(), hidden);
        if (gate.empty()) {
          act.push_back(u > 0 ? u * u : 0);
        } else {
          const double v = dot(gate[e], i, input.data(), hidden);
          act.push_back(v * sigmoid(v) * u);
        }
      }
      for (int64_t n = 0; n < hidden; ++n)
        y[static_cast<size_t>(n)] += g[e] * dot(down[e], n, act.data(), inner);
    }
    return y;
  }
};

TEST(ReferenceMoe, EqualsTheSumOverAllExperts) {
  constexpr int64_t kRows = 9, kHidden = 21, kInner = 13;
  std::unique_ptr<Backend> backend = make("reference");
  const std::vector<float> bias = random_floats(12, 77, 0.3f);
  uint32_t seed = 0;
  for (bool gated : {true, false}) {
    for (int variant = 0; variant < 6; ++variant) {
      MoeArgs args;
      args.num_experts = variant < 2 ? 7 : variant == 2 ? 5 : 12;
      args.num_experts_per_tok = variant == 2 ? 3 : 2 + variant % 3;
      args.score = variant % 2 == 0 ? RouterScore::kSoftmax : RouterScore::kSigmoid;
      args.norm_topk_prob = variant != 4;
      args.norm_eps = variant == 3 ? 1e-20f : 0;
      args.routed_scaling_factor = variant == 5 ? 2.5f : 1;
      if (variant >= 3) args.correction_bias = bias;
      if (variant >= 4) args.n_group = 4, args.topk_group = 2;
      args.activation = gated ? Activation::kSilu : Activation::kRelu2;

      DenseMoe dense;
      dense.hidden = kHidden;
      dense.inner = kInner;
      PackRequest up, down;
      up.num_experts = down.num_experts = args.num_experts;
      if (gated) up.order = PartOrder::kGateAndUp;
      for (int e = 0; e < args.num_experts; ++e) {
        if (gated) dense.gate.push_back(random_floats(kInner * kHidden, ++seed));
        dense.up.push_back(random_floats(kInner * kHidden, ++seed));
        dense.down.push_back(random_floats(kInner * kHidden, ++seed));
      }
      for (size_t e = 0; e < dense.up.size(); ++e) {
        if (gated) up.parts.push_back(view_of(dense.gate[e], kInner, kHidden));
        up.parts.push_back(view_of(dense.up[e], kInner, kHidden));
        down.parts.push_back(view_of(dense.down[e], kHidden, kInner));
      }
      const auto up_weight = std::move(backend->pack(up)).value();
      const auto down_weight = std::move(backend->pack(down)).value();
      EXPECT_EQ(up_weight->num_rows, kInner);
      EXPECT_EQ(down_weight->num_rows, kHidden);
      EXPECT_EQ(up_weight->num_experts, args.num_experts);

      std::vector<float> x = random_floats(kRows * kHidden, ++seed);
      std::vector<float> logits =
          random_floats(static_cast<size_t>(kRows * args.num_experts), ++seed, 2);
      std::vector<float> y = random_floats(kRows * kHidden, ++seed), residual = y;
      const Tensor in = tensor_of(x, kHidden), out = tensor_of(y, kHidden);
      const Tensor scores = tensor_of(logits, args.num_experts);
      backend->moe_ops()->moe(out, in, scores, *up_weight, *down_weight, args, out);
      for (int64_t t = 0; t < kRows; ++t) {
        const std::vector<double> expected = dense(in.row(t), scores.row(t), args);
        for (int64_t n = 0; n < kHidden; ++n) {
          const double want =
              expected[static_cast<size_t>(n)] + residual[static_cast<size_t>(t * kHidden + n)];
          EXPECT_NEAR(out.at(t, n), want, 1e-5 * std::max(1.0, std::fabs(want)))
              << "variant " << variant << ", row " << t;
        }
      }
    }
  }
}

}  // namespace
}  // namespace invar
