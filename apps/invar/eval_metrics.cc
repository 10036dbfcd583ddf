#include "eval_metrics.h"

#include <algorithm>
#include <cmath>

namespace invar::cli {
namespace {

// log(sum(exp(logits))), and where the largest stands (the lowest id among equals).
struct Normalizer {
  double log_sum = 0;
  size_t best = 0;
};
Normalizer normalize(std::span<const float> logits) {
  Normalizer result;
  result.best =
      static_cast<size_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  const double largest = logits[result.best];
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - largest);
  result.log_sum = largest + std::log(sum);
  return result;
}

}  // namespace

void EvalMetrics::add(std::span<const float> logits, int32_t next_id) {
  nll_ += normalize(logits).log_sum - logits[static_cast<size_t>(next_id)];
  ++num_positions_;
}

void EvalMetrics::add(std::span<const float> logits, std::span<const float> reference,
                      int32_t next_id) {
  const Normalizer ours = normalize(logits), theirs = normalize(reference);
  double kl = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    const double log_p = reference[i] - theirs.log_sum;
    kl += std::exp(log_p) * (log_p - (logits[i] - ours.log_sum));
  }
  nll_ += ours.log_sum - logits[static_cast<size_t>(next_id)];
  reference_nll_ += theirs.log_sum - reference[static_cast<size_t>(next_id)];
  kl_.push_back(std::max(kl, 0.0));  // rounding alone makes it negative
  num_agreeing_ += ours.best == theirs.best ? 1 : 0;
  ++num_positions_;
}

double EvalMetrics::mean_nll() const {
  return num_positions_ > 0 ? nll_ / static_cast<double>(num_positions_) : 0;
}

double EvalMetrics::perplexity() const { return std::exp(mean_nll()); }

double EvalMetrics::reference_perplexity() const {
  return num_positions_ > 0 ? std::exp(reference_nll_ / static_cast<double>(num_positions_)) : 0;
}

double EvalMetrics::mean_kl() const {
  double sum = 0;
  for (const double kl : kl_) sum += kl;
  return kl_.empty() ? 0 : sum / static_cast<double>(kl_.size());
}

double EvalMetrics::kl_percentile(double part) const {
  if (kl_.empty()) return 0;
  std::vector<double> sorted = kl_;
  std::sort(sorted.begin(), sorted.end());
  // Nearest rank.
  const auto rank = static_cast<size_t>(std::ceil(part * static_cast<double>(sorted.size())));
  return sorted[std::clamp<size_t>(rank, 1, sorted.size()) - 1];
}

double EvalMetrics::top1_agreement() const {
  return num_positions_ > 0
             ? static_cast<double>(num_agreeing_) / static_cast<double>(num_positions_)
             : 0;
}

}  // namespace invar::cli
