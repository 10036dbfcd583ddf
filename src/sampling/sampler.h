// (9) The last stop of the walk, after engine/model_runner.cc (5) brought the logits back; the id
// returns to engine/engine.cc (3). Logits of one row -> the next token id.
//
// Order of the steps (specs/api.md section 4.4); each works on what the one before left:
//   1 logit_bias (>= 100: only such ids; <= -100: never)   2 repetition, 3 frequency, 4 presence
//   5 ids that are never sampled, or not allowed here   6 temperature   7 min_p   8 top_k   9 top_p
//   10 draw
// Step 10 is a Gumbel-max draw: argmax of score + noise(seed, position, id), which has exactly the
// softmax's probabilities and needs no normalisation. So a token's fate depends on its own score
// and noise only: neither the other rows of the batch nor the order of work can change it.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "invar/invar.h"

namespace invar {

// Which ids of a vocabulary a model may emit: ids below num_ids that are not listed in `never`
// (fillers and padding rows of the head). Shared by all requests of an engine.
struct SampleableIds {
  int32_t num_ids = 0;
  std::vector<int32_t> never;  // ascending
};

// Ranges of every field; the error names the field, the range and what was found.
Result<void> check_sampling_params(const SamplingParams& params, int32_t vocab_size);

// Scratch of the draw, reused from row to row; belongs to the thread that samples.
class SamplerScratch {
 public:
  struct Candidate {
    float score;  // (logit - largest logit) / temperature
    int32_t id;
  };

 private:
  friend class Sampler;
  std::vector<float> scores_;  // edited logits
  std::vector<float> maxima_;  // of each block of kScanBlock scores
  std::vector<Candidate> candidates_;
};

// One request's sampling state: its parameters and the tokens it has seen.
class Sampler {
 public:
  Sampler(const SamplingParams& params, std::shared_ptr<const SampleableIds> ids);

  void see_prompt(std::span<const int32_t> prompt);
  void see_reply(int32_t id);

  // Whether draw() without a mask takes the largest logit, the lowest id of equals, of all ids that
  // may be sampled.
  bool takes_best() const {
    return (params_.temperature == 0 || params_.top_k == 1) && params_.logit_bias.empty() &&
           params_.repetition_penalty == 1 && params_.frequency_penalty == 0 &&
           params_.presence_penalty == 0;
  }

  // The id at `position` of the reply (0: its first token). `allowed`: bit id says whether it may
  // be drawn (a constraint's mask); empty: all may. Errors: a logit that is not finite, or no id
  // left to choose from.
  Result<int32_t> draw(std::span<const float> logits, uint64_t position, SamplerScratch& scratch,
                       std::span<const uint64_t> allowed = {}) const;

 private:
  struct Seen {
    int32_t in_reply = 0;
    int32_t in_window = 0;  // among the tokens that repetition_penalty looks at
  };
  void add_to_window(int32_t id);
  Result<float> edit_scores(std::span<const float> logits, std::span<const uint64_t> allowed,
                            SamplerScratch& scratch) const;
  void apply_bias(std::vector<float>& scores, std::span<const uint64_t> allowed) const;
  void apply_penalties(std::vector<float>& scores) const;

  SamplingParams params_;
  std::shared_ptr<const SampleableIds> ids_;
  std::unordered_map<int32_t, Seen> seen_;
  std::deque<int32_t> window_;  // with repeat_last_n > 0: the last so many tokens
};

// Log-softmax of unmodified logits: the chosen token's value and the `num_top` largest, ordered by
// value descending, id ascending.
struct RowLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;
};
RowLogprobs row_logprobs(std::span<const float> logits, int32_t chosen, int num_top);

}  // namespace invar
