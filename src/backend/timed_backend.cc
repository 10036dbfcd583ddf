// Keeping time around another backend's calls. A step begins with embed() and ends with
// synchronize(), as engine/model_runner.cc runs them.
#include "backend/timed_backend.h"

#include <algorithm>

namespace invar {
namespace {

using Clock = std::chrono::steady_clock;

// What attention has to read and to compute for one window.
struct AttentionWork {
  double keys = 0;   // seen by any row
  double pairs = 0;  // of a row and a key that it sees
};

AttentionWork attention_work(const Window& window, int64_t sliding_window) {
  AttentionWork work;
  for (int64_t row = 0; row < window.num_rows; ++row) {
    const int64_t seen = window.start + row + 1;
    work.pairs += static_cast<double>(sliding_window > 0 ? std::min(seen, sliding_window) : seen);
  }
  const int64_t end = window.start + window.num_rows;
  const int64_t first =
      sliding_window > 0 ? std::max<int64_t>(0, window.start + 1 - sliding_window) : 0;
  work.keys = static_cast<double>(end - first);
  return work;
}

}  // namespace

const char* op_kind_name(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
      return "embed";
    case OpKind::kRmsNorm:
      return "rms_norm";
    case OpKind::kHeadRmsNorm:
      return "head_rms_norm";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kGatedLinear:
      return "gated_linear";
    case OpKind::kRope:
      return "rope";
    case OpKind::kAttention:
      return "attention";
    case OpKind::kGatherRows:
      return "gather_rows";
    case OpKind::kLmHead:
      return "lm_head";
    case OpKind::kShortConv:
      return "short_conv";
    case OpKind::kGatedDelta:
      return "gated_delta";
    case OpKind::kSsd:
      return "ssd";
    case OpKind::kGatedNorm:
      return "gated_norm";
    case OpKind::kSigmoidGate:
      return "sigmoid_gate";
    case OpKind::kRelu2:
      return "relu2";
    case OpKind::kRouter:
      return "router";
    case OpKind::kMoe:
      return "moe";
    case OpKind::kAddGated:
      return "add_gated";
  }
  return "unknown";
}

std::vector<StepTime> TimedBackend::take_steps() {
  const std::lock_guard lock(mutex_);
  return std::exchange(steps_, {});
}

void TimedBackend::add_time(const OpTime& op, double seconds) {
  auto found = std::find_if(step_.ops.begin(), step_.ops.end(), [&](const OpTime& other) {
    return other.kind == op.kind && other.num_rows == op.num_rows && other.num_cols == op.num_cols;
  });
  if (found == step_.ops.end()) {
    step_.ops.push_back({op.kind, op.num_rows, op.num_cols});
    found = step_.ops.end() - 1;
  }
  ++found->num_calls;
  found->seconds += seconds;
  found->read_bytes += op.read_bytes;
  found->macs += op.macs;
}

void TimedBackend::add_weight(const PackedWeight& w, double macs) {
  step_.weight_bytes += static_cast<double>(w.num_bytes);
  step_.linear_macs += macs;
}

void TimedBackend::embed(Tensor y, std::span<const int32_t> ids, const PackedWeight& table,
                         float scale) {
  step_ = StepTime();
  if (before_step_) step_.variant = before_step_();
  step_.start = Clock::now();
  step_.num_rows = y.num_rows;
  const double bytes = static_cast<double>(table.num_bytes) / static_cast<double>(table.num_rows) *
                       static_cast<double>(y.num_rows);
  timed({.kind = OpKind::kEmbed, .num_cols = y.num_cols, .read_bytes = bytes},
        [&] { inner_->embed(y, ids, table, scale); });
}

void TimedBackend::rms_norm(Tensor y, Tensor x, std::span<const float> weight, float eps,
                            Tensor residual) {
  timed({.kind = OpKind::kRmsNorm, .num_cols = x.num_cols},
        [&] { inner_->rms_norm(y, x, weight, eps, residual); });
}

void TimedBackend::head_rms_norm(Tensor x, int head_dim, std::span<const float> weight, float eps) {
  timed({.kind = OpKind::kHeadRmsNorm, .num_cols = x.num_cols},
        [&] { inner_->head_rms_norm(x, head_dim, weight, eps); });
}

void TimedBackend::linear(Tensor y, Tensor x, const PackedWeight& w, std::span<const float> bias,
                          Tensor residual) {
  const double macs = static_cast<double>(x.num_rows * w.num_rows * w.num_cols);
  add_weight(w, macs);
  timed({OpKind::kLinear, w.num_rows, w.num_cols, 0, 0, static_cast<double>(w.num_bytes), macs},
        [&] { inner_->linear(y, x, w, bias, residual); });
}

void TimedBackend::gated_linear(Tensor y, Tensor x, const PackedWeight& w, Activation activation) {
  const double macs = 2 * static_cast<double>(x.num_rows * w.num_rows * w.num_cols);
  add_weight(w, macs);
  timed(
      {OpKind::kGatedLinear, w.num_rows, w.num_cols, 0, 0, static_cast<double>(w.num_bytes), macs},
      [&] { inner_->gated_linear(y, x, w, activation); });
}

void TimedBackend::rope(Tensor x, int head_dim, std::span<const int32_t> positions,
                        const RopeSpec& spec) {
  timed({.kind = OpKind::kRope, .num_cols = x.num_cols},
        [&] { inner_->rope(x, head_dim, positions, spec); });
}

void TimedBackend::attention(Tensor y, Tensor q, Tensor k, Tensor v,
                             std::span<const Window> windows, KvCache& cache,
                             const AttentionArgs& args) {
  const KvLayerShape shape{args.num_kv_heads, args.head_dim};
  const double key_bytes =
      static_cast<double>(inner_->kv_page_bytes(std::span(&shape, 1))) / kPagePositions;
  step_.num_windows = static_cast<int>(windows.size());
  OpTime op{.kind = OpKind::kAttention, .num_cols = args.sliding_window};
  for (const Window& window : windows) {
    const AttentionWork work = attention_work(window, args.sliding_window);
    op.read_bytes += work.keys * key_bytes;
    op.macs += 2 * work.pairs * args.num_heads * args.head_dim;
  }
  step_.kv_bytes += op.read_bytes;
  timed(op, [&] { inner_->attention(y, q, k, v, windows, cache, args); });
}

void TimedBackend::gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) {
  timed({.kind = OpKind::kGatherRows, .num_cols = x.num_cols},
        [&] { inner_->gather_rows(y, x, rows); });
}

void TimedBackend::lm_head(Tensor logits, Tensor x, const PackedWeight& w, float softcap) {
  const double macs = static_cast<double>(x.num_rows * w.num_rows * w.num_cols);
  add_weight(w, macs);
  timed({OpKind::kLmHead, w.num_rows, w.num_cols, 0, 0, static_cast<double>(w.num_bytes), macs},
        [&] { inner_->lm_head(logits, x, w, softcap); });
}

void TimedBackend::synchronize() {
  inner_->synchronize();
  step_.end = Clock::now();
  const std::lock_guard lock(mutex_);
  steps_.push_back(std::move(step_));
}

}  // namespace invar
