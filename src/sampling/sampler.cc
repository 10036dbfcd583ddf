// (9) The sampler: before it engine/model_runner.cc (5), after it engine/engine.cc (3) again. The
// order of its steps stands in sampler.h. What bounds the speed is the passes over the vocabulary
// (scan.h): two for every draw, one more for a top_p of the whole vocabulary. All else looks at the
// largest score of each block first, and only into those blocks that matter.
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "base/check.h"
#include "base/math.h"
#include "sampling/race.h"
#include "sampling/random.h"
#include "sampling/scan.h"

namespace invar {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
using Candidate = SamplerScratch::Candidate;

// Larger score first, lower id first among equals: the one order of this file.
bool before(const Candidate& a, const Candidate& b) {
  return a.score != b.score ? a.score > b.score : a.id < b.id;
}

// The scores (value - largest value) / temperature of a vocabulary, worked out where they are
// asked for. Rounding keeps the order of values, so a block's largest value gives its largest
// score.
struct Scores {
  std::span<const float> values, maxima;
  float largest;
  float temperature;

  float of(float value) const { return (value - largest) / temperature; }
  size_t size() const { return values.size(); }

  // Calls body(id, score, e^score) for every score >= bound, ids ascending.
  template <typename Body>
  void for_each_from(float bound, const Body& body) const {
    for (size_t b = 0; b < maxima.size(); ++b) {
      if (of(maxima[b]) < bound) continue;
      const size_t begin = b * kScanBlock, count = std::min(kScanBlock, values.size() - begin);
      float scores[kScanBlock], weights[kScanBlock];
      scan().weigh_block(values.data() + begin, count, largest, temperature, scores, weights);
      for (size_t i = 0; i < count; ++i)
        if (scores[i] >= bound) body(static_cast<int32_t>(begin + i), scores[i], weights[i]);
    }
  }
};

void gather_from(const Scores& scores, float bound, std::vector<Candidate>& out) {
  scores.for_each_from(bound, [&](int32_t id, float score, float) { out.push_back({score, id}); });
}

// A score that at least k ids reach, and mostly not many more: the k-th largest among those of the
// blocks. Minus infinity where k is too large for that to tell anything.
float bound_of_top(const Scores& scores, size_t k) {
  if (k > scores.maxima.size() / 2) return kMinusInf;
  std::vector<float> maxima(scores.maxima.begin(), scores.maxima.end());
  const auto kth = maxima.begin() + static_cast<ptrdiff_t>(k) - 1;
  std::nth_element(maxima.begin(), kth, maxima.end(), std::greater<float>());
  return scores.of(*kth);
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

// Looks at ranges below `limit` only; .range is `limit` when the run goes on there.
RunEnd find_run_end(const RangeWeights& weights, double wanted, int limit = kNumRanges - 1) {
  RunEnd end;
  while (end.range < limit && end.sum + weights[end.range] < wanted)
    end.sum += weights[end.range++];
  return end;
}

// Of the candidates of the run's last range, those that the run still takes.
void cut_last_range(std::vector<Candidate>::iterator in_last, std::vector<Candidate>& candidates,
                    const RunEnd& run_end, double wanted) {
  std::sort(in_last, candidates.end(), before);
  double sum = run_end.sum;
  auto end = in_last;
  // The first of all is taken, however small wanted is.
  while (end != candidates.end() && (sum < wanted || (run_end.range == 0 && end == in_last)))
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
  const RunEnd end = find_run_end(weights, top_p * total);
  std::erase_if(candidates, [&](const Candidate& c) { return range_of(c.score) > end.range; });
  const auto in_last =
      std::partition(candidates.begin(), candidates.end(),
                     [&](const Candidate& c) { return range_of(c.score) < end.range; });
  cut_last_range(in_last, candidates, end, top_p * total);
}

// The same over the whole vocabulary: gives the score above which all belong to the run, and
// appends those at or below it that do. Mostly the run ends among the few largest scores, so their
// ranges are weighed first, and all others only when it does not.
float gather_top_p(const Scores& scores, double top_p, std::vector<Candidate>& out) {
  const double total =
      scan().sum_exp(scores.values.data(), scores.size(), scores.largest, scores.temperature);
  const double wanted = top_p * total;
  RunEnd end;
  for (const int limit : {4 * 128, kNumRanges - 1}) {
    RangeWeights weights = {};
    const bool all = limit == kNumRanges - 1;
    scores.for_each_from(all ? kMinusInf : static_cast<float>(-limit) / kRangesPerUnit,
                         [&](int32_t, float score, float weight) {
                           weights[range_of(score)] += static_cast<double>(weight);
                         });
    end = find_run_end(weights, wanted, limit);
    if (end.range < limit) break;
  }
  const bool is_lowest = end.range == kNumRanges - 1;
  scores.for_each_from(is_lowest ? -std::numeric_limits<float>::max()  // without what is banned
                                 : static_cast<float>(-end.range - 1) / kRangesPerUnit,
                       [&](int32_t id, float score, float) {
                         if (range_of(score) == end.range) out.push_back({score, id});
                       });
  cut_last_range(out.begin(), out, end, wanted);
  return static_cast<float>(-end.range) / kRangesPerUnit;
}

// Ids beyond a mask are not allowed.
bool is_allowed(std::span<const uint64_t> allowed, int32_t id) {
  if (allowed.empty()) return true;
  const size_t word = static_cast<size_t>(id) / 64;
  return word < allowed.size() && (allowed[word] >> (id % 64) & 1) != 0;
}

void apply_mask(std::vector<float>& scores, std::span<const uint64_t> allowed) {
  for (size_t begin = 0; begin < scores.size(); begin += 64) {
    const size_t end = std::min(begin + 64, scores.size());
    const uint64_t word = begin / 64 < allowed.size() ? allowed[begin / 64] : 0;
    if (word == ~uint64_t{0}) continue;
    if (word == 0) {
      std::fill(scores.data() + begin, scores.data() + end, kMinusInf);
      continue;
    }
    for (size_t i = begin; i < end; ++i)
      if ((word >> (i - begin) & 1) == 0) scores[i] = kMinusInf;
  }
}

}  // namespace

Sampler::Sampler(const SamplingParams& params, std::shared_ptr<const SampleableIds> ids)
    : params_(params), ids_(std::move(ids)) {}

void Sampler::see_prompt(std::span<const int32_t> prompt) {
  if (params_.repetition_penalty == 1) return;  // the only penalty that looks at the prompt
  for (const int32_t id : prompt) add_to_window(id);
}

void Sampler::add_to_window(int32_t id) {
  if (params_.repeat_last_n == 0) return;
  ++seen_[id].in_window;
  if (params_.repeat_last_n < 0) return;
  window_.push_back(id);
  if (static_cast<int64_t>(window_.size()) <= params_.repeat_last_n) return;
  --seen_[window_.front()].in_window;
  window_.pop_front();
}

void Sampler::see_reply(int32_t id) {
  if (params_.repetition_penalty == 1 && params_.frequency_penalty == 0 &&
      params_.presence_penalty == 0)
    return;
  ++seen_[id].in_reply;
  if (params_.repetition_penalty != 1) add_to_window(id);
}

void Sampler::apply_bias(std::vector<float>& scores, std::span<const uint64_t> allowed) const {
  const int64_t n = static_cast<int64_t>(scores.size());
  const auto names = [&](int32_t id) { return id >= 0 && id < n; };
  bool restricted = false;
  for (const auto& [id, bias] : params_.logit_bias)
    restricted |= bias >= 100 && names(id) && is_allowed(allowed, id) &&
                  !std::binary_search(ids_->never.begin(), ids_->never.end(), id);
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
    if (seen.in_window > 0)
      score = score > 0 ? score / params_.repetition_penalty : score * params_.repetition_penalty;
    score -= static_cast<float>(seen.in_reply) * params_.frequency_penalty;
    if (seen.in_reply > 0) score -= params_.presence_penalty;
  }
}

// Steps 1 to 5 into `scratch`; the largest.
Result<float> Sampler::edit_scores(std::span<const float> logits, std::span<const uint64_t> allowed,
                                   SamplerScratch& scratch) const {
  const size_t num_ids = std::min(logits.size(), static_cast<size_t>(ids_->num_ids));
  std::vector<float>& scores = scratch.scores_;
  scores.resize(num_ids);
  const std::span<const float> padding = logits.subspan(num_ids);
  if (!scan().copy_finite(logits.data(), num_ids, scores.data()) ||
      !scan().copy_finite(padding.data(), padding.size(), nullptr))
    return corrupt(
        "the model gave a logit that is not a finite number; the checkpoint is damaged "
        "or its arithmetic overflows");
  if (!params_.logit_bias.empty()) apply_bias(scores, allowed);
  if (!seen_.empty()) apply_penalties(scores);
  for (const int32_t id : ids_->never)
    if (static_cast<size_t>(id) < num_ids) scores[static_cast<size_t>(id)] = kMinusInf;
  if (!allowed.empty()) apply_mask(scores, allowed);
  scratch.maxima_.resize((num_ids + kScanBlock - 1) / kScanBlock);
  const float max = scan().block_maxima(scores.data(), num_ids, scratch.maxima_.data());
  if (max == kMinusInf)
    return invalid_argument("logit_bias bans every token%s",
                            allowed.empty() ? "" : " that the constraint allows");
  if (max > std::numeric_limits<float>::max())
    return corrupt("a logit is so large that repetition_penalty %g makes it infinite",
                   static_cast<double>(params_.repetition_penalty));
  return max;
}

Result<int32_t> Sampler::draw(std::span<const float> logits, uint64_t position,
                              SamplerScratch& scratch, std::span<const uint64_t> allowed) const {
  INVAR_TRY(const float max, edit_scores(logits, allowed, scratch));
  const std::vector<float>&values = scratch.scores_, &maxima = scratch.maxima_;
  const size_t top_k = params_.top_k > 0 ? static_cast<size_t>(params_.top_k) : values.size();
  const auto block = std::find(maxima.begin(), maxima.end(), max) - maxima.begin();
  const auto in_block = values.begin() + block * static_cast<ptrdiff_t>(kScanBlock);
  const auto first = static_cast<int32_t>(std::find(in_block, values.end(), max) - values.begin());
  if (params_.temperature == 0 || top_k == 1) return first;  // all that can be drawn

  // Steps 7 to 9: who races is every id with a score above `all_above`, and the candidates.
  const Scores scores{values, maxima, max, params_.temperature};
  std::vector<Candidate>& candidates = scratch.candidates_;
  candidates.clear();
  float all_above = std::numeric_limits<float>::infinity();
  const double top_p = static_cast<double>(params_.top_p);
  if (params_.min_p > 0 || top_k < scores.size()) {
    float bound = -std::numeric_limits<float>::max();  // leaves out what is banned
    if (params_.min_p > 0)
      bound = std::max(bound, static_cast<float>(log_f64(static_cast<double>(params_.min_p))));
    if (top_k < scores.size()) bound = std::max(bound, bound_of_top(scores, top_k));
    gather_from(scores, bound, candidates);
    keep_top_k(candidates, top_k);
    if (top_p < 1) keep_top_p(candidates, top_p);
  } else {
    all_above = top_p < 1 ? gather_top_p(scores, top_p, candidates) : kMinusInf;
  }

  Race race(params_.seed, position);
  for (const Candidate& c : candidates) race.enter(c.score, c.id);
  if (0 > all_above) race.enter(0, first);  // sets a bound that turns most blocks away
  for (size_t b = 0; b < maxima.size(); ++b) {
    const float most = scores.of(maxima[b]);
    if (!(most > all_above)) continue;
    const size_t begin = b * kScanBlock;
    race.enter_block(most, static_cast<int32_t>(begin),
                     static_cast<int32_t>(std::min(kScanBlock, values.size() - begin)),
                     [&](int32_t id) {
                       const float score = scores.of(values[static_cast<size_t>(id)]);
                       return score > all_above ? score : kMinusInf;
                     });
  }
  INVAR_CHECK(static_cast<size_t>(race.winner()) < values.size(), "nothing was drawn");
  return race.winner();
}

RowLogprobs row_logprobs(std::span<const float> logits, int32_t chosen, int num_top) {
  INVAR_CHECK(chosen >= 0 && static_cast<size_t>(chosen) < logits.size(), "id %d", chosen);
  std::vector<float> maxima((logits.size() + kScanBlock - 1) / kScanBlock);
  const float max = scan().block_maxima(logits.data(), logits.size(), maxima.data());
  const double log_sum = log_f64(scan().sum_exp(logits.data(), logits.size(), max, 1));
  const auto logprob = [&](float logit) {
    return static_cast<float>(static_cast<double>(logit - max) - log_sum);
  };
  RowLogprobs result;
  result.chosen = {chosen, logprob(logits[static_cast<size_t>(chosen)])};
  const size_t k = std::min(logits.size(), static_cast<size_t>(std::max(num_top, 0)));
  if (k == 0) return result;
  const Scores scores{logits, maxima, 0, 1};  // the logits themselves
  std::vector<Candidate> top;
  gather_from(scores, bound_of_top(scores, k), top);
  keep_top_k(top, k);
  std::sort(top.begin(), top.end(), before);
  for (const Candidate& c : top) result.top.push_back({c.id, logprob(c.score)});
  return result;
}

}  // namespace invar
