// The choice of experts. A row's choice depends on its own logits only.
#include "backend/cpu/moe_route.h"

#include <algorithm>
#include <limits>

#include "base/math.h"

namespace invar::cpu {
namespace {

void score(const float* logits, const MoeArgs& args, std::vector<float>& scores) {
  if (args.score == RouterScore::kSigmoid) {
    for (size_t e = 0; e < scores.size(); ++e) scores[e] = 1.0f / (1.0f + exp_f32(-logits[e]));
    return;
  }
  float largest = logits[0];
  for (size_t e = 1; e < scores.size(); ++e) largest = std::max(largest, logits[e]);
  float sum = 0;
  for (size_t e = 0; e < scores.size(); ++e) sum += scores[e] = exp_f32(logits[e] - largest);
  for (float& value : scores) value /= sum;
}

// The best entries so far, best first; of equals the one that came first stays in front.
class Best {
 public:
  Best(int32_t* ids, int count) : ids_(ids), count_(count) {}
  void offer(const float* values, int32_t id) {
    if (filled_ == count_ && !(values[id] > values[ids_[count_ - 1]])) return;
    int at = filled_ < count_ ? filled_++ : count_ - 1;
    for (; at > 0 && values[id] > values[ids_[at - 1]]; --at) ids_[at] = ids_[at - 1];
    ids_[at] = id;
  }

 private:
  int32_t* ids_;
  int count_, filled_ = 0;
};

// Marks the topk_group groups with the largest sums of their two best scores.
void choose_groups(const std::vector<float>& corrected, const MoeArgs& args,
                   std::vector<uint8_t>& is_open) {
  const auto num_groups = static_cast<size_t>(args.n_group);
  const size_t size = corrected.size() / num_groups;
  std::vector<float> sums(num_groups);
  for (size_t group = 0; group < num_groups; ++group) {
    float best = -std::numeric_limits<float>::infinity(), second = best;
    for (size_t e = group * size; e < (group + 1) * size; ++e) {
      second = std::max(second, std::min(best, corrected[e]));
      best = std::max(best, corrected[e]);
    }
    sums[group] = size > 1 ? best + second : best;
  }
  std::vector<int32_t> chosen(static_cast<size_t>(args.topk_group));
  Best best_groups(chosen.data(), args.topk_group);
  for (int32_t group = 0; group < args.n_group; ++group) best_groups.offer(sums.data(), group);
  is_open.assign(num_groups, 0);
  for (int32_t group : chosen) is_open[static_cast<size_t>(group)] = 1;
}

}  // namespace

void route_row(const float* logits, const MoeArgs& args, int32_t* experts, float* weights) {
  const auto num_experts = static_cast<size_t>(args.num_experts);
  const auto num_slots = static_cast<size_t>(args.num_experts_per_tok);
  thread_local std::vector<float> scores, corrected;
  scores.resize(num_experts);
  score(logits, args, scores);
  if (std::any_of(scores.begin(), scores.end(), [](float s) { return s != s; })) {
    for (size_t j = 0; j < num_slots; ++j) {
      experts[j] = static_cast<int32_t>(j);
      weights[j] = std::numeric_limits<float>::quiet_NaN();
    }
    return;
  }
  corrected = scores;
  for (size_t e = 0; e < args.correction_bias.size(); ++e) corrected[e] += args.correction_bias[e];

  // Scores rise with logits; where rounding makes equal scores of different logits, these decide.
  const float* ranks = args.correction_bias.empty() ? logits : corrected.data();
  Best best(experts, args.num_experts_per_tok);
  if (args.topk_group < args.n_group) {
    thread_local std::vector<uint8_t> is_open;
    choose_groups(corrected, args, is_open);
    const auto group_size = args.num_experts / args.n_group;
    for (int32_t e = 0; e < args.num_experts; ++e)
      if (is_open[static_cast<size_t>(e / group_size)]) best.offer(ranks, e);
  } else {
    for (int32_t e = 0; e < args.num_experts; ++e) best.offer(ranks, e);
  }

  float sum = 0;
  for (size_t j = 0; j < num_slots; ++j)
    sum += weights[j] = scores[static_cast<size_t>(experts[j])];
  for (size_t j = 0; j < num_slots; ++j) {
    if (args.norm_topk_prob) weights[j] /= sum + args.norm_eps;
    weights[j] *= args.routed_scaling_factor;
  }
}

void PairOrder::sort(std::span<const int32_t> experts, int num_slots, int num_experts) {
  first.assign(static_cast<size_t>(num_experts) + 1, 0);
  for (int32_t e : experts) ++first[static_cast<size_t>(e) + 1];
  for (size_t e = 1; e < first.size(); ++e) first[e] += first[e - 1];
  std::vector<int64_t> next(first.begin(), first.end() - 1);
  pair.resize(experts.size());
  row.resize(experts.size());
  for (size_t i = 0; i < experts.size(); ++i) {
    pair[i] = next[static_cast<size_t>(experts[i])]++;
    row[static_cast<size_t>(pair[i])] = static_cast<int64_t>(i) / num_slots;
  }
}

}  // namespace invar::cpu
