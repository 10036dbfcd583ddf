// (9) The sampler: before it engine/model_runner.cc (5), after it engine/engine.cc (3) again. The
// order of its steps stands in sampler.h. What bounds the speed is one pass over the vocabulary per
// step that is switched on; passes are written so that compilers vectorise them with any
// instruction set and to the same bits (eight fixed lanes, no reduction that a compiler may
// reorder).
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "base/math.h"
#include "sampling/random.h"

namespace invar {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
constexpr float kExpLow = -88.0f;  // e^x is 0 there (random.h)
constexpr size_t kLanes = 8;
using Candidate = SamplerScratch::Candidate;

// Larger score first, lower id first among equals: the one order of this file.
bool before(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

float largest(std::span<const float> values) {
  float lanes[kLanes];
  std::fill(lanes, lanes + kLanes, kMinusInf);
  size_t i = 0;
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t j = 0; j < kLanes; ++j)
      lanes[j] = values[i + j] > lanes[j] ? values[i + j] : lanes[j];
  float result = kMinusInf;
  for (; i < values.size(); ++i) result = std::max(result, values[i]);
  for (const float lane : lanes) result = std::max(result, lane);
  return result;
}

bool all_finite(std::span<const float> values) {
  uint32_t bad[kLanes] = {};
  size_t i = 0;
  const auto is_bad = [](float x) {
    return static_cast<uint32_t>((std::bit_cast<uint32_t>(x) & 0x7f800000u) == 0x7f800000u);
  };
  for (; i + kLanes <= values.size(); i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) bad[j] |= is_bad(values[i + j]);
  uint32_t any = 0;
  for (; i < values.size(); ++i) any |= is_bad(values[i]);
  for (const uint32_t lane : bad) any |= lane;
  return any == 0;
}

// Sum of e^(values[i] - shift) with one fixed order of additions; `each` gets every block of
// weights and the index of its first.
template <typename Each>
double sum_exp(std::span<const float> values, float shift, const Each& each) {
  constexpr size_t kBlock = 256;
  double lanes[kLanes] = {};
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, values.size() - begin);
    float weights[kBlock];
    for (size_t j = 0; j < n; ++j) {
      const float x = values[begin + j] - shift;
      weights[j] = x < kExpLow ? kExpLow : x;
    }
    for (size_t j = 0; j < n; ++j) weights[j] = exp_clamped(weights[j]);
    std::fill(weights + n, weights + kBlock, 0.0f);
    for (size_t j = 0; j < kBlock; j += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] += static_cast<double>(weights[j + lane]);
    each(std::span<const float>(weights, n), begin);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Appends every id whose score is >= bound. Whole blocks are turned away by their largest score;
// inside one there is no branch, since half of the ids may pass.
void gather_from(std::span<const float> scores, float bound, std::vector<Candidate>& out) {
  constexpr size_t kBlock = 128;
  for (size_t begin = 0; begin < scores.size(); begin += kBlock) {
    const auto block = scores.subspan(begin, std::min(kBlock, scores.size() - begin));
    if (largest(block) < bound) continue;
    Candidate found[kBlock];
    size_t count = 0;
    for (size_t i = 0; i < block.size(); ++i) {
      found[count] = {block[i], static_cast<int32_t>(begin + i)};
      count += static_cast<size_t>(block[i] >= bound);
    }
    out.insert(out.end(), found, found + count);
  }
}

// A score that at least k ids reach, and mostly not many more: the k-th largest among the maxima of
// short blocks. Minus infinity where k is too large for that to tell anything.
float bound_of_top(std::span<const float> scores, size_t k) {
  constexpr size_t kBlock = 32;
  if (k > scores.size() / (2 * kBlock)) return kMinusInf;
  std::vector<float> maxima;
  maxima.reserve(scores.size() / kBlock + 1);
  for (size_t begin = 0; begin < scores.size(); begin += kBlock)
    maxima.push_back(largest(scores.subspan(begin, std::min(kBlock, scores.size() - begin))));
  const auto kth = maxima.begin() + static_cast<ptrdiff_t>(k) - 1;
  std::nth_element(maxima.begin(), kth, maxima.end(), std::greater<float>());
  return *kth;
}

// Keeps the k first in the order of before(), ordered by id.
void keep_top_k(std::vector<Candidate>& candidates, size_t k) {
  if (candidates.size() <= k) return;
  std::nth_element(candidates.begin(), candidates.begin() + static_cast<ptrdiff_t>(k) - 1,
                   candidates.end(), before);
  candidates.resize(k);
  std::sort(candidates.begin(), candidates.end(),
            [](const Candidate& a, const Candidate& b) { return a.id < b.id; });
}

// top_p keeps the shortest run, in the order of before(), whose weight reaches a wanted one. Only
// one narrow range of scores has to be sorted for that: the one in which the run ends. Ranges are
// 1/128 wide; all scores below -32 + 1/128 share the last.
constexpr int kNumRanges = 4096;
constexpr float kRangesPerUnit = 128;
using RangeWeights = double[kNumRanges];

int range_of(float score) {
  return static_cast<int>(std::min(score * -kRangesPerUnit, float{kNumRanges - 1}));
}

struct RunEnd {
  int range = 0;
  double sum = 0;  // weight of the ranges before
};

RunEnd find_run_end(const RangeWeights& weights, double wanted) {
  RunEnd end;
  while (end.range < kNumRanges - 1 && end.sum + weights[end.range] < wanted)
    end.sum += weights[end.range++];
  return end;
}

// Cuts candidates, of which none is missing down to the run's last range, at the end of the run.
void cut_run(std::vector<Candidate>& candidates, const RunEnd& run_end, double wanted) {
  const auto in_last =
      std::partition(candidates.begin(), candidates.end(),
                     [&](const Candidate& c) { return range_of(c.score) < run_end.range; });
  candidates.erase(
      std::remove_if(in_last, candidates.end(),
                     [&](const Candidate& c) { return range_of(c.score) > run_end.range; }),
      candidates.end());
  std::sort(in_last, candidates.end(), before);
  double sum = run_end.sum;
  auto end = in_last;
  while (end != candidates.end() && (sum < wanted || end == candidates.begin()))
    sum += static_cast<double>(exp_nonpositive((end++)->score));
  candidates.erase(end, candidates.end());
}

// top_p of candidates, which come ordered by id.
void keep_top_p(std::vector<Candidate>& candidates, double top_p) {
  RangeWeights weights = {};
  for (const Candidate& c : candidates)
    weights[range_of(c.score)] += static_cast<double>(exp_nonpositive(c.score));
  double total = 0;
  for (const double weight : weights) total += weight;
  cut_run(candidates, find_run_end(weights, top_p * total), top_p * total);
}

// The same over the whole vocabulary, of which little more than the set is written down.
void gather_top_p(std::span<const float> scores, double top_p, std::vector<Candidate>& out) {
  RangeWeights weights = {};
  const double total = sum_exp(scores, 0, [&](std::span<const float> block, size_t begin) {
    for (size_t i = 0; i < block.size(); ++i)
      weights[range_of(scores[begin + i])] += static_cast<double>(block[i]);
  });
  const RunEnd end = find_run_end(weights, top_p * total);
  const bool is_lowest = end.range == kNumRanges - 1;  // without what is banned
  gather_from(scores,
              is_lowest ? -std::numeric_limits<float>::max()
                        : static_cast<float>(-end.range - 1) / kRangesPerUnit,
              out);
  cut_run(out, end, top_p * total);
}

// Gumbel-max over a stream of (score, id). -log(1 - w) >= w, so the noise -log(-log(1 - w)) is at
// most -log(w), which the leading zeros of w bound: nearly every id is turned away before a
// logarithm.
class Race {
 public:
  Race(uint64_t seed, uint64_t position) : key_(seed, position) {}

  void enter(float score, int32_t id) {
    const uint64_t bits = key_.bits(id);
    const int zeros = std::countl_zero(bits | 0x800u);
    if (score + static_cast<float>(zeros + 1) * 0.6931473f < bound_) return;
    const double w = (static_cast<double>(bits >> 12) + 0.5) * 0x1p-52;  // in (0, 1), exact
    const double value = static_cast<double>(score) - log_f64(-log_f64(1.0 - w));
    if (value > best_ || (value == best_ && id < id_)) {
      best_ = value;
      id_ = id;
      bound_ = static_cast<float>(value) - 1e-3f;  // slack for float rounding of the bound
    }
  }
  int32_t winner() const { return id_; }

 private:
  NoiseKey key_;
  double best_ = -std::numeric_limits<double>::infinity();
  float bound_ = kMinusInf;
  int32_t id_ = std::numeric_limits<int32_t>::max();
};

}  // namespace

Sampler::Sampler(const SamplingParams& params, std::shared_ptr<const SampleableIds> ids)
    : params_(params), ids_(std::move(ids)) {}

void Sampler::see_prompt(std::span<const int32_t> prompt) {
  if (params_.repetition_penalty == 1) return;  // the only penalty that looks at the prompt
  for (const int32_t id : prompt) seen_[id];
}

void Sampler::see_reply(int32_t id) {
  if (params_.repetition_penalty == 1 && params_.frequency_penalty == 0 &&
      params_.presence_penalty == 0)
    return;
  ++seen_[id].in_reply;
}

void Sampler::apply_bias(std::vector<float>& scores) const {
  const int64_t n = static_cast<int64_t>(scores.size());
  const auto names = [&](int32_t id) { return id >= 0 && id < n; };
  bool restricted = false;
  for (const auto& [id, bias] : params_.logit_bias)
    restricted |=
        bias >= 100 && names(id) && !std::binary_search(ids_->never.begin(), ids_->never.end(), id);
  if (restricted) {
    std::vector<std::pair<int32_t, float>> kept;
    for (const auto& [id, bias] : params_.logit_bias)
      if (bias >= 100 && names(id)) kept.emplace_back(id, scores[static_cast<size_t>(id)]);
    std::fill(scores.begin(), scores.end(), kMinusInf);
    for (const auto& [id, score] : kept) scores[static_cast<size_t>(id)] = score;
  }
  for (const auto& [id, bias] : params_.logit_bias) {
    if (!names(id)) continue;
    float& score = scores[static_cast<size_t>(id)];
    score = bias <= -100 ? kMinusInf : score + bias;
  }
}

void Sampler::apply_penalties(std::vector<float>& scores) const {
  for (const auto& [id, seen] : seen_) {  // each id by itself: the map's order does not matter
    if (id < 0 || static_cast<size_t>(id) >= scores.size()) continue;
    float& score = scores[static_cast<size_t>(id)];
    score = score > 0 ? score / params_.repetition_penalty : score * params_.repetition_penalty;
    score -= static_cast<float>(seen.in_reply) * params_.frequency_penalty;
    if (seen.in_reply > 0) score -= params_.presence_penalty;
  }
}

// Steps 1 to 5 into `scores`; the largest.
Result<float> Sampler::edit_scores(std::span<const float> logits,
                                   std::vector<float>& scores) const {
  if (!all_finite(logits))
    return corrupt(
        "the model gave a logit that is not a finite number; the checkpoint is damaged "
        "or its arithmetic overflows");
  const size_t num_ids = std::min(logits.size(), static_cast<size_t>(ids_->num_ids));
  scores.assign(logits.begin(), logits.begin() + static_cast<ptrdiff_t>(num_ids));
  if (!params_.logit_bias.empty()) apply_bias(scores);
  if (!seen_.empty()) apply_penalties(scores);
  for (const int32_t id : ids_->never)
    if (static_cast<size_t>(id) < num_ids) scores[static_cast<size_t>(id)] = kMinusInf;
  const float max = largest(scores);
  if (max == kMinusInf) return invalid_argument("logit_bias bans every token");
  if (max > std::numeric_limits<float>::max())
    return corrupt("a logit is so large that repetition_penalty %g makes it infinite",
                   static_cast<double>(params_.repetition_penalty));
  return max;
}

// Steps 7 to 9: what is left of scratch.scores_, as candidates.
void Sampler::cut(SamplerScratch& scratch, size_t top_k) const {
  const std::vector<float>& scores = scratch.scores_;
  std::vector<Candidate>& candidates = scratch.candidates_;
  const double top_p = static_cast<double>(params_.top_p);
  candidates.clear();
  if (params_.min_p == 0 && top_k >= scores.size()) return gather_top_p(scores, top_p, candidates);
  float bound = -std::numeric_limits<float>::max();  // leaves out what is banned
  if (params_.min_p > 0)
    bound = std::max(bound, static_cast<float>(log_f64(static_cast<double>(params_.min_p))));
  if (top_k < scores.size()) bound = std::max(bound, bound_of_top(scores, top_k));
  gather_from(scores, bound, candidates);
  keep_top_k(candidates, top_k);
  if (params_.top_p < 1) keep_top_p(candidates, top_p);
}

Result<int32_t> Sampler::draw(std::span<const float> logits, uint64_t position,
                              SamplerScratch& scratch) const {
  std::vector<float>& scores = scratch.scores_;
  INVAR_TRY(const float max, edit_scores(logits, scores));
  const size_t top_k = params_.top_k > 0 ? static_cast<size_t>(params_.top_k) : scores.size();
  if (params_.temperature == 0 || top_k == 1)  // the largest is all that can be drawn
    return static_cast<int32_t>(std::find(scores.begin(), scores.end(), max) - scores.begin());

  const float temperature = params_.temperature;
  for (float& score : scores) score = (score - max) / temperature;
  Race race(params_.seed, position);
  if (params_.min_p > 0 || top_k < scores.size() || params_.top_p < 1) {
    cut(scratch, top_k);
    for (const Candidate& c : scratch.candidates_) race.enter(c.score, c.id);
  } else {
    for (size_t i = 0; i < scores.size(); ++i) race.enter(scores[i], static_cast<int32_t>(i));
  }
  INVAR_CHECK(static_cast<size_t>(race.winner()) < scores.size(), "nothing was drawn");
  return race.winner();
}

RowLogprobs row_logprobs(std::span<const float> logits, int32_t chosen, int num_top) {
  INVAR_CHECK(chosen >= 0 && static_cast<size_t>(chosen) < logits.size(), "id %d", chosen);
  const float max = largest(logits);
  const double log_sum = log_f64(sum_exp(logits, max, [](auto, size_t) {}));
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit - max) - log_sum);
  };
  RowLogprobs result;
  result.chosen = {chosen, logprob(logits[static_cast<size_t>(chosen)])};
  const size_t k = std::min(logits.size(), static_cast<size_t>(std::max(num_top, 0)));
  if (k == 0) return result;
  std::vector<Candidate> top;
  gather_from(logits, bound_of_top(logits, k), top);
  keep_top_k(top, k);
  std::sort(top.begin(), top.end(), before);
  for (const Candidate& c : top) result.top.push_back({c.id, logprob(c.score)});
  return result;
}

}  // namespace invar
