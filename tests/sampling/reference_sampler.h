// The sampler's definition written the obvious way: doubles, full sorts, libm. Gives the set a
// token may be drawn from and each one's probability; shares no code with src/sampling.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <vector>

#include "invar/invar.h"

namespace invar::testing {

struct Choice {
  int32_t id;
  double probability;
};

// Descending probability, ascending id among equals.
inline std::vector<Choice> reference_distribution(const SamplingParams& params,
                                                  const std::vector<float>& logits,
                                                  const std::vector<int32_t>& prompt,
                                                  const std::vector<int32_t>& reply,
                                                  const std::set<int32_t>& never = {}) {
  const double kBanned = -INFINITY;
  std::vector<double> score(logits.begin(), logits.end());
  bool restricted = false;
  for (auto [id, bias] : params.logit_bias) restricted |= bias >= 100 && !never.contains(id);
  for (size_t i = 0; i < score.size(); ++i) {
    bool marked = false;
    for (auto [id, bias] : params.logit_bias) {
      if (id != static_cast<int32_t>(i)) continue;
      score[i] = bias <= -100 ? kBanned : score[i] + bias;
      marked |= bias >= 100;
    }
    if (restricted && !marked) score[i] = kBanned;
  }
  std::map<int32_t, int> in_reply;
  for (int32_t id : reply) ++in_reply[id];
  std::set<int32_t> seen(prompt.begin(), prompt.end());
  seen.insert(reply.begin(), reply.end());
  for (int32_t id : seen) {
    double& s = score[static_cast<size_t>(id)];
    s = s > 0 ? s / params.repetition_penalty : s * params.repetition_penalty;
    s -= in_reply[id] * static_cast<double>(params.frequency_penalty);
    if (in_reply[id] > 0) s -= params.presence_penalty;
  }
  for (int32_t id : never) score[static_cast<size_t>(id)] = kBanned;

  std::vector<Choice> all;
  const double max = *std::max_element(score.begin(), score.end());
  for (size_t i = 0; i < score.size(); ++i)
    if (score[i] != kBanned)
      all.push_back({static_cast<int32_t>(i),
                     params.temperature == 0 ? (score[i] == max ? 1.0 : 0.0)
                                             : std::exp((score[i] - max) / params.temperature)});
  std::stable_sort(all.begin(), all.end(),
                   [](const Choice& a, const Choice& b) { return a.probability > b.probability; });
  if (params.temperature == 0) all.resize(1);
  const double first = all[0].probability;
  std::erase_if(all, [&](const Choice& c) { return c.probability < params.min_p * first; });
  if (params.top_k > 0 && all.size() > static_cast<size_t>(params.top_k))
    all.resize(static_cast<size_t>(params.top_k));
  double total = 0;
  for (const Choice& c : all) total += c.probability;
  if (params.top_p < 1) {
    double sum = 0;
    size_t n = 0;
    while (n < all.size() && sum < params.top_p * total) sum += all[n++].probability;
    all.resize(n);
    total = sum;
  }
  for (Choice& c : all) c.probability /= total;
  return all;
}

}  // namespace invar::testing
