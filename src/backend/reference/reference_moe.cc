// See reference_moe.h. A row whose logits have a NaN gets NaN weights; whom it chooses is left
// open.
#include "backend/reference/reference_moe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "backend/reference/reference_weight.h"

namespace invar {
namespace {

struct Choice {
  int expert = 0;
  double weight = 0;
};

double sigmoid(double x) { return 1.0 / (1.0 + std::exp(-x)); }

std::vector<double> scores_of(const float* logits, const MoeArgs& args) {
  std::vector<double> scores(logits, logits + args.num_experts);
  if (args.score == RouterScore::kSigmoid) {
    for (double& score : scores) score = sigmoid(score);
    return scores;
  }
  const double largest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (double& score : scores) sum += score = std::exp(score - largest);
  for (double& score : scores) score /= sum;
  return scores;
}

// Indices of the `count` largest values, the largest first, of equals the lower index.
std::vector<int> largest(const std::vector<double>& values, int count) {
  std::vector<int> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return values[static_cast<size_t>(a)] > values[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(count));
  return order;
}

std::vector<Choice> route(const float* logits, const MoeArgs& args) {
  const std::vector<double> scores = scores_of(logits, args);
  const auto num_chosen = static_cast<size_t>(args.num_experts_per_tok);
  std::vector<Choice> chosen(num_chosen);
  if (std::any_of(scores.begin(), scores.end(), [](double s) { return std::isnan(s); })) {
    for (size_t slot = 0; slot < num_chosen; ++slot)
      chosen[slot] = {static_cast<int>(slot), std::nan("")};
    return chosen;
  }
  std::vector<double> corrected = scores;
  for (size_t e = 0; e < args.correction_bias.size(); ++e) corrected[e] += args.correction_bias[e];

  // Scores rise with logits, but distinct logits may have one score (1, or 0).
  std::vector<double> ranks = corrected;
  if (args.correction_bias.empty()) ranks.assign(logits, logits + args.num_experts);
  std::vector<int> order = largest(ranks, args.num_experts);
  if (args.topk_group < args.n_group) {
    const int group_size = args.num_experts / args.n_group;
    std::vector<double> sums;
    for (auto group = corrected.begin(); group != corrected.end(); group += group_size) {
      std::vector<double> members(group, group + group_size);
      std::sort(members.rbegin(), members.rend());
      sums.push_back(members[0] + (group_size > 1 ? members[1] : 0.0));
    }
    const std::vector<int> kept = largest(sums, args.topk_group);
    std::erase_if(order, [&](int expert) {
      return std::find(kept.begin(), kept.end(), expert / group_size) == kept.end();
    });
  }
  for (size_t slot = 0; slot < num_chosen; ++slot) chosen[slot].expert = order[slot];

  double sum = 0;
  for (Choice& c : chosen) sum += c.weight = scores[static_cast<size_t>(c.expert)];
  for (Choice& c : chosen) {
    if (args.norm_topk_prob) c.weight /= sum + args.norm_eps;
    c.weight *= args.routed_scaling_factor;
  }
  return chosen;
}

class ReferenceMoeOps final : public MoeOps {
 public:
  explicit ReferenceMoeOps(ThreadPool& pool) : pool_(pool) {}

  void router(Tensor logits, Tensor x, const PackedWeight& w) override {
    std::vector<std::vector<double>> rows;
    for (int64_t t = 0; t < x.num_rows; ++t) rows.emplace_back(x.row(t), x.row(t) + x.num_cols);
    const auto products = multiply(static_cast<const ReferenceWeight&>(w), 0, w.num_rows, rows);
    for (int64_t t = 0; t < x.num_rows; ++t)
      for (int64_t n = 0; n < w.num_rows; ++n)
        logits.at(t, n) =
            static_cast<float>(products[static_cast<size_t>(t)][static_cast<size_t>(n)]);
  }

  void moe(Tensor y, Tensor x, Tensor logits, const PackedWeight& up, const PackedWeight& down,
           const MoeArgs& args, Tensor residual) override {
    const auto& up_weight = static_cast<const ReferenceWeight&>(up);
    const auto num_slots = static_cast<size_t>(args.num_experts_per_tok);
    std::vector<std::vector<Choice>> chosen;
    for (int64_t t = 0; t < x.num_rows; ++t) chosen.push_back(route(logits.row(t), args));

    // [row][slot], down_e(act(up_e x))
    std::vector<std::vector<std::vector<double>>> outputs(
        chosen.size(), std::vector<std::vector<double>>(num_slots));
    for (int expert = 0; expert < args.num_experts; ++expert) {
      std::vector<std::vector<double>> inputs;
      std::vector<std::vector<double>*> targets;
      for (size_t t = 0; t < chosen.size(); ++t) {
        for (size_t slot = 0; slot < num_slots; ++slot) {
          if (chosen[t][slot].expert != expert) continue;
          const float* row = x.row(static_cast<int64_t>(t));
          inputs.emplace_back(row, row + x.num_cols);
          targets.push_back(&outputs[t][slot]);
        }
      }
      if (inputs.empty()) continue;
      const bool gated = up_weight.order == PartOrder::kGateAndUp;
      auto hidden = multiply(up_weight, expert, (gated ? 2 : 1) * up.num_rows, inputs);
      for (std::vector<double>& row : hidden) {
        for (size_t i = 0; i < static_cast<size_t>(up.num_rows); ++i)
          row[i] = activate(row[i], args.activation) *
                   (gated ? row[static_cast<size_t>(up.num_rows) + i] : 1.0);
        row.resize(static_cast<size_t>(up.num_rows));
      }
      auto results =
          multiply(static_cast<const ReferenceWeight&>(down), expert, down.num_rows, hidden);
      for (size_t i = 0; i < targets.size(); ++i) *targets[i] = std::move(results[i]);
    }

    for (int64_t t = 0; t < y.num_rows; ++t) {
      const auto row = static_cast<size_t>(t);
      for (int64_t n = 0; n < y.num_cols; ++n) {
        double sum = 0;
        for (size_t slot = 0; slot < num_slots; ++slot)
          sum += chosen[row][slot].weight * outputs[row][slot][static_cast<size_t>(n)];
        if (residual.data != nullptr) sum += residual.at(t, n);
        y.at(t, n) = static_cast<float>(sum);
      }
    }
  }

  void add_gated(Tensor y, Tensor x, Tensor gate) override {
    for (int64_t t = 0; t < y.num_rows; ++t)
      for (int64_t n = 0; n < y.num_cols; ++n)
        y.at(t, n) = static_cast<float>(y.at(t, n) + sigmoid(gate.at(t, 0)) * x.at(t, n));
  }

 private:
  // The first num_rows rows of an expert times each of `inputs`.
  std::vector<std::vector<double>> multiply(const ReferenceWeight& w, int expert, int64_t num_rows,
                                            const std::vector<std::vector<double>>& inputs) {
    std::vector<std::vector<double>> out(inputs.size(),
                                         std::vector<double>(static_cast<size_t>(num_rows)));
    pool_.run(num_rows, [&](int64_t begin, int64_t end, int) {
      std::vector<float> row(static_cast<size_t>(w.num_cols));
      for (int64_t n = begin; n < end; ++n) {
        w.row(n, row.data(), expert);
        for (size_t i = 0; i < inputs.size(); ++i) {
          double sum = 0;
          for (size_t k = 0; k < row.size(); ++k) sum += row[k] * inputs[i][k];
          out[i][static_cast<size_t>(n)] = sum;
        }
      }
    });
    return out;
  }

  ThreadPool& pool_;
};

}  // namespace

std::unique_ptr<MoeOps> make_reference_moe_ops(ThreadPool& pool) {
  return std::make_unique<ReferenceMoeOps>(pool);
}

}  // namespace invar
