// (9) The sampler: before it engine/model_runner.cc (5), after it engine/engine.cc (3) again. The
// order of its steps stands in sampler.h. What bounds the speed is one pass over the vocabulary per
// step that is switched on; passes are written so that compilers vectorise them with any
// instruction set and to the same bits (eight fixed lanes, no reduction that a compiler may
// reorder).
#include "sampling/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/math.h"
#include "sampling/random.h"

namespace invar {
namespace {

constexpr float kMinusInf = -std::numeric_limits<float>::infinity();
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

// Sum of e^(values[i] - shift) with one fixed order of additions.
double sum_exp(std::span<const float> values, float shift) {
  constexpr size_t kBlock = 256;
  double lanes[kLanes] = {};
  for (size_t begin = 0; begin < values.size(); begin += kBlock) {
    const size_t n = std::min(kBlock, values.size() - begin);
    float weights[kBlock];
    for (size_t j = 0; j < n; ++j) weights[j] = exp_nonpositive(values[begin + j] - shift);
    std::fill(weights + n, weights + kBlock, 0.0f);
    for (size_t j = 0; j < kBlock; j += kLanes)
      for (size_t lane = 0; lane < kLanes; ++lane)
        lanes[lane] += static_cast<double>(weights[j + lane]);
  }
  double sum = 0;
  for (const double lane : lanes) sum += lane;
  return sum;
}

// Floats as integers of the same order, so that a histogram of the top bits is a histogram of
// ranges.
uint32_t ordered_bits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x + 0.0f);  // -0 and +0 are equal scores
  return (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
}

// Appends every id whose score is >= bound.
void gather_from(std::span<const float> scores, float bound, std::vector<Candidate>& out) {
  for (size_t i = 0; i < scores.size(); ++i)
    if (scores[i] >= bound) out.push_back({scores[i], static_cast<int32_t>(i)});
}

// A score such that at least k ids reach it, and few more: the lower edge of the histogram bucket
// in which the k-th largest lies.
float bound_of_top(std::span<const float> scores, size_t k) {
  constexpr int kShift = 20;
  uint32_t counts[1u << (32 - kShift)] = {};
  for (const float score : scores) ++counts[ordered_bits(score) >> kShift];
  size_t reached = 0;
  uint32_t bucket = (1u << (32 - kShift)) - 1;
  while ((reached += counts[bucket]) < k && bucket > 0) --bucket;
  const uint32_t edge = bucket << kShift;
  return std::bit_cast<float>((edge & 0x80000000u) != 0 ? edge & 0x7fffffffu : ~edge);
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

// Keeps the shortest run, in the order of before(), whose weight reaches top_p of `total` (< 0: the
// candidates' own). Candidates come ordered by id. Only one narrow range of scores has to be
// sorted: the one in which the run ends.
void keep_top_p(std::vector<Candidate>& candidates, double top_p, double total) {
  constexpr int kBuckets = 4096;
  const auto bucket_of = [](float score) {  // 128 a unit; all below -32 share the last
    return score > -32.0f ? static_cast<int>(score * -128.0f) : kBuckets - 1;
  };
  double weights[kBuckets] = {};
  for (const Candidate& c : candidates)
    weights[bucket_of(c.score)] += static_cast<double>(exp_nonpositive(c.score));
  if (total < 0) {
    total = 0;
    for (const double weight : weights) total += weight;
  }
  const double wanted = top_p * total;
  int last = 0;
  double sum = 0;
  while (last < kBuckets - 1 && sum + weights[last] < wanted) sum += weights[last++];

  const auto in_last =
      std::partition(candidates.begin(), candidates.end(),
                     [&](const Candidate& c) { return bucket_of(c.score) < last; });
  candidates.erase(std::remove_if(in_last, candidates.end(),
                                  [&](const Candidate& c) { return bucket_of(c.score) > last; }),
                   candidates.end());
  std::sort(in_last, candidates.end(), before);
  auto end = in_last;
  while (end != candidates.end() && (sum < wanted || end == candidates.begin()))
    sum += static_cast<double>(exp_nonpositive((end++)->score));
  candidates.erase(end, candidates.end());
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
  return max;
}

// Steps 7 to 9: what is left of scratch.scores_, as candidates.
void Sampler::cut(SamplerScratch& scratch, size_t top_k) const {
  const std::vector<float>& scores = scratch.scores_;
  std::vector<Candidate>& candidates = scratch.candidates_;
  candidates.clear();
  float bound = -std::numeric_limits<float>::max();  // leaves out what is banned
  if (params_.min_p > 0)
    bound = std::max(bound, static_cast<float>(log_f64(static_cast<double>(params_.min_p))));
  if (top_k < scores.size()) bound = std::max(bound, bound_of_top(scores, top_k));
  const bool all = bound == -std::numeric_limits<float>::max();
  double total = -1;
  if (all) {  // only top_p: most of the vocabulary is too light to be in the set
    total = sum_exp(scores, 0);
    // Ids lighter than (1 - p) total / n weigh less than (1 - p) total together, so the set lies
    // above; half of it as slack for rounding.
    const double lightest =
        0.5 * (1 - static_cast<double>(params_.top_p)) * total / static_cast<double>(scores.size());
    if (lightest > 1e-37) bound = static_cast<float>(log_f64(lightest));
  }
  gather_from(scores, bound, candidates);
  keep_top_k(candidates, top_k);
  if (params_.top_p < 1) keep_top_p(candidates, static_cast<double>(params_.top_p), total);
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
  const double log_sum = log_f64(sum_exp(logits, max));
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
