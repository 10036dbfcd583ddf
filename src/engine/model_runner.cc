// (5) The model runner: before it scheduler.cc (4), after it models/<family>.cc (6), whose logits
// it brings back for sampling/sampler.cc (9). A prompt chunk, a decode and a teacher-forced chunk
// are all windows; a model never learns which.
#include "engine/model_runner.h"

#include "backend/recurrent_ops.h"
#include "base/check.h"

namespace invar {

ModelRunner::ModelRunner(const Model& model, Backend& backend, KvCache& cache, StateCache* states,
                         std::atomic<int64_t>& num_operations)
    : model_(model),
      backend_(backend),
      cache_(cache),
      states_(states),
      num_operations_(num_operations) {}

void ModelRunner::run_copies(const StepPlan& plan) {
  for (const PageCopy& copy : plan.copies) backend_.copy_page(cache_, copy.from, copy.to);
  for (const StateCopy& copy : plan.state_copies)
    backend_.recurrent_ops()->copy_state(*states_, copy.from, copy.to);
}

void ModelRunner::want_best(std::span<const uint8_t> rows, const SampleableIds& ids) {
  best_rows_.assign(rows.begin(), rows.end());
  best_among_ = &ids;
}

Tensor ModelRunner::run(const StepPlan& plan) {
  run_copies(plan);
  token_ids_.clear();
  positions_.clear();
  logit_rows_.clear();
  windows_.clear();
  sequences_.clear();
  arena_.reset();
  backend_.begin_step();
  if (best_among_ != nullptr)
    backend_.want_best(best_rows_, best_among_->num_ids, best_among_->never);
  best_among_ = nullptr;
  for (const PlannedWindow& planned : plan.windows) {
    const Sequence& sequence = *planned.sequence;
    const int64_t first_row = static_cast<int64_t>(token_ids_.size());
    INVAR_CHECK(planned.start + planned.num_rows <=
                    static_cast<int64_t>(sequence.holding.pages.size()) * kPagePositions,
                "rows to %ld in %zu pages", long{planned.start + planned.num_rows},
                sequence.holding.pages.size());
    for (int64_t i = 0; i < planned.num_rows; ++i) {
      token_ids_.push_back(sequence.token_ids[static_cast<size_t>(planned.start + i)]);
      positions_.push_back(static_cast<int32_t>(planned.start + i));
      if (i >= planned.num_rows - planned.num_logit_rows)
        logit_rows_.push_back(static_cast<int32_t>(first_row + i));
    }
    windows_.push_back(
        {first_row, planned.num_rows, planned.start, sequence.holding.pages, sequence.state_slot});
    sequences_.push_back({sequence.token_ids, sequence.num_prompt_tokens});
  }
  ops::Context ctx{backend_, arena_, cache_, &num_operations_, states_};
  const Tensor logits =
      model_.forward(ctx, {token_ids_, positions_, windows_, logit_rows_, sequences_});
  backend_.synchronize();
  INVAR_CHECK(logits.num_rows == static_cast<int64_t>(logit_rows_.size()) &&
                  logits.num_cols == model_.info().vocab_size,
              "logits [%ld, %ld] of %zu rows", long{logits.num_rows}, long{logits.num_cols},
              logit_rows_.size());
  return logits;
}

}  // namespace invar
