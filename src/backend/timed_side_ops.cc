// TimedBackend's recurrent and expert ops: the inner backend's, with their times. States are not
// counted as bytes read.
#include "backend/timed_backend.h"

namespace invar {

class TimedBackend::TimedRecurrentOps final : public RecurrentOps {
 public:
  TimedRecurrentOps(TimedBackend& timer, RecurrentOps& inner) : timer_(timer), inner_(inner) {}

  Result<std::unique_ptr<StateCache>> make_state_cache(std::span<const RecurrentLayerShape> layers,
                                                       int num_slots) override {
    return inner_.make_state_cache(layers, num_slots);
  }
  size_t state_slot_bytes(std::span<const RecurrentLayerShape> layers) const override {
    return inner_.state_slot_bytes(layers);
  }
  void copy_state(StateCache& cache, int from, int to) override {
    inner_.copy_state(cache, from, to);
  }
  void short_conv(Tensor y, Tensor x, std::span<const float> weight, std::span<const float> bias,
                  std::span<const Window> windows, StateCache& cache, int layer) override {
    timer_.timed({.kind = OpKind::kShortConv, .num_cols = x.num_cols},
                 [&] { inner_.short_conv(y, x, weight, bias, windows, cache, layer); });
  }
  void gated_delta(Tensor y, Tensor q, Tensor k, Tensor v, Tensor a, Tensor b,
                   std::span<const Window> windows, StateCache& cache,
                   const GatedDeltaArgs& args) override {
    timer_.timed({.kind = OpKind::kGatedDelta, .num_cols = v.num_cols},
                 [&] { inner_.gated_delta(y, q, k, v, a, b, windows, cache, args); });
  }
  void ssd(Tensor y, Tensor x, Tensor b, Tensor c, Tensor dt, std::span<const Window> windows,
           StateCache& cache, const SsdArgs& args) override {
    timer_.timed({.kind = OpKind::kSsd, .num_cols = x.num_cols},
                 [&] { inner_.ssd(y, x, b, c, dt, windows, cache, args); });
  }
  void gated_norm(Tensor y, Tensor x, Tensor z, std::span<const float> weight,
                  const GatedNormArgs& args) override {
    timer_.timed({.kind = OpKind::kGatedNorm, .num_cols = x.num_cols},
                 [&] { inner_.gated_norm(y, x, z, weight, args); });
  }
  void sigmoid_gate(Tensor x, Tensor gate) override {
    timer_.timed({.kind = OpKind::kSigmoidGate, .num_cols = x.num_cols},
                 [&] { inner_.sigmoid_gate(x, gate); });
  }
  void relu2(Tensor x) override {
    timer_.timed({.kind = OpKind::kRelu2, .num_cols = x.num_cols}, [&] { inner_.relu2(x); });
  }

 private:
  TimedBackend& timer_;
  RecurrentOps& inner_;
};

class TimedBackend::TimedMoeOps final : public MoeOps {
 public:
  TimedMoeOps(TimedBackend& timer, MoeOps& inner) : timer_(timer), inner_(inner) {}

  void router(Tensor logits, Tensor x, const PackedWeight& w) override {
    const double macs = static_cast<double>(x.num_rows * w.num_rows * w.num_cols);
    timer_.add_weight(w, macs);
    timer_.timed(
        {OpKind::kRouter, w.num_rows, w.num_cols, 0, 0, static_cast<double>(w.num_bytes), macs},
        [&] { inner_.router(logits, x, w); });
  }
  void moe(Tensor y, Tensor x, Tensor logits, const PackedWeight& up, const PackedWeight& down,
           const MoeArgs& args, Tensor residual) override {
    const int64_t up_parts = args.activation == Activation::kRelu2 ? 1 : 2;
    OpTime op{OpKind::kMoe, up.num_rows, up.num_cols};
    op.macs =
        static_cast<double>(x.num_rows * args.num_experts_per_tok *
                            (up_parts * up.num_rows * up.num_cols + down.num_rows * down.num_cols));
    timer_.timed(op, [&] {
      inner_.moe(y, x, logits, up, down, args, residual);
      op.read_bytes = static_cast<double>(up.num_bytes + down.num_bytes) *
                      inner_.num_experts_read() / args.num_experts;
    });
    timer_.step_.weight_bytes += op.read_bytes;
    timer_.step_.linear_macs += op.macs;
  }
  int num_experts_read() const override { return inner_.num_experts_read(); }
  void add_gated(Tensor y, Tensor x, Tensor gate) override {
    timer_.timed({.kind = OpKind::kAddGated, .num_cols = x.num_cols},
                 [&] { inner_.add_gated(y, x, gate); });
  }

 private:
  TimedBackend& timer_;
  MoeOps& inner_;
};

TimedBackend::TimedBackend(std::unique_ptr<Backend> inner, bool time_ops)
    : inner_(std::move(inner)), time_ops_(time_ops) {
  if (RecurrentOps* ops = inner_->recurrent_ops())
    recurrent_ops_ = std::make_unique<TimedRecurrentOps>(*this, *ops);
  if (MoeOps* ops = inner_->moe_ops()) moe_ops_ = std::make_unique<TimedMoeOps>(*this, *ops);
}

TimedBackend::~TimedBackend() = default;

RecurrentOps* TimedBackend::recurrent_ops() { return recurrent_ops_.get(); }
MoeOps* TimedBackend::moe_ops() { return moe_ops_.get(); }

}  // namespace invar
