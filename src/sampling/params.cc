// Ranges of the sampling parameters (specs/api.md section 4.4). Comparisons are written so that NaN
// is out of every range.
#include <cmath>

#include "sampling/sampler.h"

namespace invar {
namespace {

struct Range {
  const char* name;
  double value, low, high;
};

}  // namespace

Result<void> check_sampling_params(const SamplingParams& params, int32_t vocab_size) {
  const Range ranges[] = {
      {"temperature", params.temperature, 0, 5},
      {"min_p", params.min_p, 0, 1},
      {"repetition_penalty", params.repetition_penalty, 0.01f, 10},
      {"presence_penalty", params.presence_penalty, -2, 2},
      {"frequency_penalty", params.frequency_penalty, -2, 2},
  };
  for (const Range& range : ranges)
    if (!(range.value >= range.low && range.value <= range.high))
      return invalid_argument("%s must be between %g and %g, got %g", range.name, range.low,
                              range.high, range.value);
  if (!(params.top_p > 0 && params.top_p <= 1))
    return invalid_argument("top_p must be above 0 and at most 1, got %g",
                            static_cast<double>(params.top_p));
  if (params.top_k < -1)
    return invalid_argument("top_k must be 0 or -1 (off) or at least 1, got %d", params.top_k);
  if (params.repeat_last_n < -1)
    return invalid_argument("repeat_last_n must be -1 (all), 0 (off) or at least 1, got %lld",
                            static_cast<long long>(params.repeat_last_n));
  if (params.logit_bias.size() > 1024)
    return invalid_argument("logit_bias has %zu entries, the limit is 1024",
                            params.logit_bias.size());
  for (const auto& [id, bias] : params.logit_bias) {
    if (id < 0 || id >= vocab_size)
      return invalid_argument("logit_bias names token %d; the vocabulary has ids 0 to %d", id,
                              vocab_size - 1);
    if (!(bias >= -100 && bias <= 100))
      return invalid_argument("logit_bias of token %d must be between -100 and 100, got %g", id,
                              static_cast<double>(bias));
  }
  return {};
}

}  // namespace invar
