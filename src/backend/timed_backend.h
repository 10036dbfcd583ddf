// TimedBackend: a Backend that passes every call on to another one and keeps time of the engine's
// steps, and of each operation when asked. For benchmarks; results and their bits are the inner
// backend's. A method that gets added to Backend must be passed on here as well.
#pragma once

#include <chrono>
#include <functional>
#include <mutex>

#include "backend/backend.h"
#include "backend/moe_ops.h"
#include "backend/recurrent_ops.h"

namespace invar {

enum class OpKind {
  kEmbed,
  kRmsNorm,
  kHeadRmsNorm,
  kLinear,
  kGatedLinear,
  kRope,
  kAttention,
  kGatherRows,
  kLmHead,
  kShortConv,
  kGatedDelta,
  kSsd,
  kGatedNorm,
  kSigmoidGate,
  kRelu2,
  kRouter,
  kMoe,
  kAddGated
};
const char* op_kind_name(OpKind kind);  // "linear"

// The calls of one kind and shape in a step.
struct OpTime {
  OpKind kind = OpKind::kEmbed;
  // Weight rows and columns (of one part for a gated linear, of one expert's up); attention: 0 and
  // the sliding window.
  int64_t num_rows = 0, num_cols = 0;
  int num_calls = 0;
  double seconds = 0;
  double read_bytes = 0;  // weights, or keys and values; activations are left out
  double macs = 0;        // multiply-adds with weights, or with keys and values
};

// One forward pass.
struct StepTime {
  std::chrono::steady_clock::time_point start, end;
  int64_t num_rows = 0;
  int num_windows = 0;
  double weight_bytes = 0;  // every matrix once, of experts those that some row chose
  double kv_bytes = 0;      // every key and value that some row sees, once a window
  double linear_macs = 0;   // multiply-adds with weights
  std::vector<OpTime> ops;  // only with time_ops
  int variant = 0;          // what before_step() returned
  // Every window has one row.
  bool is_decode() const { return num_rows == num_windows; }
};

class TimedBackend final : public Backend {
 public:
  // time_ops waits for the device after each operation, which costs a GPU its overlap.
  TimedBackend(std::unique_ptr<Backend> inner, bool time_ops);
  ~TimedBackend() override;

  // Called at the beginning of every step, on the engine's thread, where the inner backend may be
  // tuned. Set it while nothing runs.
  void set_before_step(std::function<int()> before_step) { before_step_ = std::move(before_step); }

  // The steps so far, which are forgotten. Callable from any thread.
  std::vector<StepTime> take_steps();

  const BackendInfo& info() const override { return inner_->info(); }
  std::optional<DeviceRoom> device_room() const override { return inner_->device_room(); }
  RecurrentOps* recurrent_ops() override;
  MoeOps* moe_ops() override;
  DeviceRates measure_rates() override { return inner_->measure_rates(); }
  Result<std::unique_ptr<PackedWeight>> pack(const PackRequest& request) override {
    return inner_->pack(request);
  }
  Result<std::unique_ptr<KvCache>> make_kv_cache(std::span<const KvLayerShape> layers,
                                                 int num_pages) override {
    return inner_->make_kv_cache(layers, num_pages);
  }
  size_t kv_page_bytes(std::span<const KvLayerShape> layers) const override {
    return inner_->kv_page_bytes(layers);
  }
  void copy_page(KvCache& cache, int from, int to) override { inner_->copy_page(cache, from, to); }
  void begin_step() override { inner_->begin_step(); }
  void embed(Tensor y, std::span<const int32_t> ids, const PackedWeight& table,
             float scale) override;
  void rms_norm(Tensor y, Tensor x, std::span<const float> weight, float eps,
                Tensor residual) override;
  void head_rms_norm(Tensor x, int head_dim, std::span<const float> weight, float eps) override;
  void linear(Tensor y, Tensor x, const PackedWeight& w, std::span<const float> bias,
              Tensor residual) override;
  void gated_linear(Tensor y, Tensor x, const PackedWeight& w, Activation activation) override;
  void rope(Tensor x, int head_dim, std::span<const int32_t> positions,
            const RopeSpec& spec) override;
  void attention(Tensor y, Tensor q, Tensor k, Tensor v, std::span<const Window> windows,
                 KvCache& cache, const AttentionArgs& args) override;
  void gather_rows(Tensor y, Tensor x, std::span<const int32_t> rows) override;
  Tensor logits_memory(Arena& arena, int64_t num_rows, int64_t num_cols) override {
    return inner_->logits_memory(arena, num_rows, num_cols);
  }
  void lm_head(Tensor logits, Tensor x, const PackedWeight& w, float softcap) override;
  void want_best(std::span<const uint8_t> rows, int32_t num_ids,
                 std::span<const int32_t> never) override {
    inner_->want_best(rows, num_ids, never);
  }
  std::span<const int32_t> best_ids() const override { return inner_->best_ids(); }
  void synchronize() override;  // ends the step
  void drop_step() override { inner_->drop_step(); }
  void synchronize_op() override { inner_->synchronize_op(); }

 private:
  class TimedRecurrentOps;  // timed_side_ops.cc
  class TimedMoeOps;

  // Runs `call` and adds it to the step under `op`'s kind and shape. `call` may still count what
  // `op` reads.
  template <typename Call>
  void timed(const OpTime& op, const Call& call) {
    if (!time_ops_) return call();
    const auto begin = std::chrono::steady_clock::now();
    call();
    inner_->synchronize_op();
    add_time(op, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count());
  }
  void add_time(const OpTime& op, double seconds);
  void add_weight(const PackedWeight& w, double macs);

  std::unique_ptr<Backend> inner_;
  std::unique_ptr<TimedRecurrentOps> recurrent_ops_;  // where `inner` has them
  std::unique_ptr<TimedMoeOps> moe_ops_;
  const bool time_ops_;
  std::function<int()> before_step_;
  StepTime step_;
  std::mutex mutex_;
  std::vector<StepTime> steps_;
};

}  // namespace invar
