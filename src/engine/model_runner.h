// (5) Lays the windows of a step side by side and runs the model.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "engine/scheduler.h"
#include "models/model.h"
#include "sampling/sampler.h"
#include "tensor/tensor.h"

namespace invar {

class ModelRunner {
 public:
  // All outlive the runner. `num_operations` is counted up all the time that a step takes.
  // `states`: null for models without recurrent layers.
  ModelRunner(const Model& model, Backend& backend, KvCache& cache, StateCache* states,
              std::atomic<int64_t>& num_operations);

  // Logits of the plan's logit rows, window after window, [rows, vocab_size]; valid until the next
  // call.
  Tensor run(const StepPlan& plan);
  // For the next run(): as Backend::want_best(), by logit row.
  void want_best(std::span<const uint8_t> rows, const SampleableIds& ids);
  // A plan without windows: only its copies.
  void run_copies(const StepPlan& plan);

 private:
  const Model& model_;
  Backend& backend_;
  KvCache& cache_;
  StateCache* const states_;
  std::atomic<int64_t>& num_operations_;
  Arena arena_;
  std::vector<int32_t> token_ids_, positions_, logit_rows_;
  std::vector<Window> windows_;
  std::vector<SequenceText> sequences_;
  std::vector<uint8_t> best_rows_;
  const SampleableIds* best_among_ = nullptr;
};

}  // namespace invar
