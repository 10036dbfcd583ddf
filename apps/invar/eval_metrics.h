// How far predictions are from the text, and from another model's predictions. Sums in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace invar::cli {

class EvalMetrics {
 public:
  // `next_id` is the token that the text goes on with.
  void add(std::span<const float> logits, int32_t next_id);
  // The same, with the reference's logits for the same position: D_KL(reference || logits).
  void add(std::span<const float> logits, std::span<const float> reference, int32_t next_id);

  int64_t num_positions() const { return num_positions_; }
  double mean_nll() const;
  double perplexity() const;
  double reference_perplexity() const;
  double mean_kl() const;
  double kl_percentile(double part) const;  // 0.99; 1: the largest
  double top1_agreement() const;            // 0 to 1

 private:
  int64_t num_positions_ = 0, num_agreeing_ = 0;
  double nll_ = 0, reference_nll_ = 0;
  std::vector<double> kl_;
};

}  // namespace invar::cli
