// (7) What models call: each op checks shapes, allocates its result in the step's arena and calls
// the backend, where backend/cpu/ (8) does the arithmetic. Contracts stand in backend/backend.h.
#pragma once

#include <atomic>
#include <optional>
#include <span>

#include "backend/backend.h"
#include "tensor/tensor.h"

namespace invar {

class StateCache;

// A window's whole sequence, of which the window holds the rows that are new.
struct SequenceText {
  std::span<const int32_t> token_ids;  // prompt, then reply
  int64_t num_prompt_tokens = 0;
};

// All rows of one step, windows side by side. Spans live as long as the step.
struct Batch {
  std::span<const int32_t> token_ids;   // [num_rows]
  std::span<const int32_t> positions;   // [num_rows], absolute in the row's sequence
  std::span<const Window> windows;      // cover the rows in order
  std::span<const int32_t> logit_rows;  // rows whose logits are wanted, ascending
  // One a window, from the engine. For models that know what to say from the text and keep nothing
  // in pages (scripted/); one that computes has all it needs in its rows and pages.
  std::span<const SequenceText> sequences = {};
  // Set: every row behind the final norm goes here, [num_rows, hidden_size], for Model::draft().
  Tensor* hidden = nullptr;
};

namespace ops {

struct Context {
  Backend& backend;
  Arena& arena;
  KvCache& cache;
  std::atomic<int64_t>* num_operations = nullptr;  // counts them, for whoever watches a long step
  StateCache* states = nullptr;                    // for models with recurrent layers
};

using FloatSpan = std::span<const float>;

Tensor embed(Context& ctx, std::span<const int32_t> ids, const PackedWeight& table,
             float scale = 1);
Tensor rms_norm(Context& ctx, Tensor x, FloatSpan weight, float eps);
// residual + rms_norm(x)
Tensor rms_norm_add(Context& ctx, Tensor x, FloatSpan weight, float eps, Tensor residual);
// y = rms_norm(x), where y is there already: columns of a tensor.
void rms_norm_to(Context& ctx, Tensor y, Tensor x, FloatSpan weight, float eps);
void head_rms_norm_(Context& ctx, Tensor x, int head_dim, FloatSpan weight, float eps);
Tensor linear(Context& ctx, Tensor x, const PackedWeight& w, FloatSpan bias = {});
// x += w h + bias, in place
void linear_add_(Context& ctx, Tensor x, Tensor h, const PackedWeight& w, FloatSpan bias = {});
Tensor gated_linear(Context& ctx, Tensor x, const PackedWeight& gate_up, Activation activation);
void rope_(Context& ctx, Tensor x, int head_dim, std::span<const int32_t> positions,
           const RopeSpec& spec);
Tensor attention(Context& ctx, Tensor q, Tensor k, Tensor v, std::span<const Window> windows,
                 const AttentionArgs& args);
Tensor gather_rows(Context& ctx, Tensor x, std::span<const int32_t> rows);
Tensor lm_head(Context& ctx, Tensor x, const PackedWeight& w, float softcap = 0);

}  // namespace ops
}  // namespace invar
