// (6) See hybrid_decoder.cc. Matrices are put in an order at load that needs no strides in a step:
// all queries, all keys, all values, all gates.
#include "models/hybrid_layer.h"

#include <cmath>

#include "ops/recurrent.h"

namespace invar {

Result<void> GatedAttention::load(const HybridConfig& c, float norm_add, const std::string& prefix,
                                  const ModelSource& source, Packer& packer) {
  const int64_t d = c.head_dim;
  const int64_t q_size = c.num_heads * d, kv_size = c.num_kv_heads * d;
  INVAR_TRY(const auto q,
            source.matrix(prefix + "q_proj", c.output_gate ? 2 * q_size : q_size, c.hidden_size));
  INVAR_TRY(const auto k, source.matrix(prefix + "k_proj", kv_size, c.hidden_size));
  INVAR_TRY(const auto v, source.matrix(prefix + "v_proj", kv_size, c.hidden_size));
  INVAR_TRY(const auto o, source.matrix(prefix + "o_proj", c.hidden_size, q_size));
  INVAR_TRY(q_norm_, source.vector(prefix + "q_norm", ".weight", d, norm_add));
  INVAR_TRY(k_norm_, source.vector(prefix + "k_norm", ".weight", d, norm_add));
  PackRequest request;
  if (!c.output_gate) {
    request.parts = {q, k, v};
  } else {
    // A head's queries and gates are neighbours in the file.
    for (int64_t head = 0; head < c.num_heads; ++head)
      request.parts.push_back(rows_of(q, 2 * head * d, d));
    request.parts.push_back(k);
    request.parts.push_back(v);
    for (int64_t head = 0; head < c.num_heads; ++head)
      request.parts.push_back(rows_of(q, (2 * head + 1) * d, d));
  }
  INVAR_TRY(qkv_, packer.pack(std::move(request)));
  INVAR_TRY(o_, packer.pack(o));
  return {};
}

void GatedAttention::add_(ops::Context& ctx, const Batch& batch, const HybridConfig& c,
                          int kv_layer, Tensor x, Tensor h) const {
  const int64_t q_size = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv_size = int64_t{c.num_kv_heads} * c.head_dim;
  const Tensor qkv = ops::linear(ctx, h, *qkv_);
  const Tensor q = qkv.cols(0, q_size);
  const Tensor k = qkv.cols(q_size, kv_size);
  const Tensor v = qkv.cols(q_size + kv_size, kv_size);
  ops::head_rms_norm_(ctx, q, c.head_dim, q_norm_, c.rms_norm_eps);
  ops::head_rms_norm_(ctx, k, c.head_dim, k_norm_, c.rms_norm_eps);
  ops::rope_(ctx, q, c.head_dim, batch.positions, c.rope);
  ops::rope_(ctx, k, c.head_dim, batch.positions, c.rope);
  AttentionArgs args;
  args.layer = kv_layer;
  args.num_heads = c.num_heads;
  args.num_kv_heads = c.num_kv_heads;
  args.head_dim = c.head_dim;
  args.scale = c.default_attention_scale();
  const Tensor y = ops::attention(ctx, q, k, v, batch.windows, args);
  if (c.output_gate) ops::sigmoid_gate_(ctx, y, qkv.cols(q_size + 2 * kv_size, q_size));
  ops::linear_add_(ctx, x, y, *o_);
}

namespace {

// Of a matrix whose rows stand together a key head - (parts[0] rows of one thing, parts[1] of the
// next, ...), then the same of the next head - the rows of thing after thing.
std::vector<MatrixView> by_thing(const MatrixView& matrix, int64_t num_heads,
                                 const std::vector<int64_t>& parts) {
  const int64_t head_rows = matrix.num_rows / num_heads;
  std::vector<MatrixView> rows;
  int64_t first = 0;
  for (const int64_t count : parts) {
    for (int64_t head = 0; head < num_heads; ++head)
      rows.push_back(rows_of(matrix, head * head_rows + first, count));
    first += count;
  }
  return rows;
}

void append(std::vector<MatrixView>& to, std::vector<MatrixView> from) {
  to.insert(to.end(), from.begin(), from.end());
}

}  // namespace

Result<void> GatedDeltaNet::load(const HybridConfig& config, const std::string& prefix,
                                 const ModelSource& source, Packer& packer) {
  const DeltaConfig& c = config.delta;
  const int64_t hidden = config.hidden_size;
  PackRequest in;
  if (c.fused_qkvz) {
    const int64_t head_values = c.value_size() / c.num_key_heads;
    INVAR_TRY(const auto qkvz,
              source.matrix(prefix + "in_proj_qkvz", c.conv_size() + c.value_size(), hidden));
    append(in.parts,
           by_thing(qkvz, c.num_key_heads, {c.key_dim, c.key_dim, head_values, head_values}));
  } else {
    INVAR_TRY(const auto qkv, source.matrix(prefix + "in_proj_qkv", c.conv_size(), hidden));
    INVAR_TRY(const auto z, source.matrix(prefix + "in_proj_z", c.value_size(), hidden));
    in.parts = {qkv, z};
  }
  std::unique_ptr<CopiedRows> copied;
  if (c.fused_ba) {
    // A few rows a head: as parts of their own they would waste most of a panel each.
    INVAR_TRY(const auto ba, source.matrix(prefix + "in_proj_ba", 2 * c.num_value_heads, hidden));
    const int64_t each = c.num_value_heads / c.num_key_heads;
    std::vector<int64_t> rows;
    for (const int64_t first : {int64_t{0}, each})
      for (int64_t head = 0; head < c.num_key_heads; ++head)
        for (int64_t i = 0; i < each; ++i) rows.push_back(head * 2 * each + first + i);
    copied = std::make_unique<CopiedRows>(ba, rows);
    in.parts.push_back(copied->view());
  } else {
    INVAR_TRY(const auto b, source.matrix(prefix + "in_proj_b", c.num_value_heads, hidden));
    INVAR_TRY(const auto a, source.matrix(prefix + "in_proj_a", c.num_value_heads, hidden));
    in.parts.push_back(b);
    in.parts.push_back(a);
  }
  INVAR_TRY(in_, packer.pack(std::move(in)));
  INVAR_TRY(const auto out, source.matrix(prefix + "out_proj", hidden, c.value_size()));
  INVAR_TRY(out_, packer.pack(out));

  // In every container the taps of a channel are neighbours; the kernels want channels to be.
  INVAR_TRY(const auto taps,
            source.values(prefix + "conv1d", ".weight", {c.conv_size(), c.conv_kernel}));
  const auto num_channels = static_cast<size_t>(c.conv_size());
  const auto num_taps = static_cast<size_t>(c.conv_kernel);
  conv_.resize(taps.size());
  for (size_t channel = 0; channel < num_channels; ++channel)
    for (size_t tap = 0; tap < num_taps; ++tap)
      conv_[tap * num_channels + channel] = taps[channel * num_taps + tap];

  INVAR_TRY(decay_, source.vector(prefix + "A_log", "", c.num_value_heads));
  if (c.decay_is_log)
    for (float& value : decay_) value = static_cast<float>(-std::exp(double{value}));
  INVAR_TRY(dt_bias_, source.vector(prefix + "dt_bias", "", c.num_value_heads));
  INVAR_TRY(norm_, source.vector(prefix + "norm", ".weight", c.value_dim));  // never w - 1
  return {};
}

void GatedDeltaNet::add_(ops::Context& ctx, const Batch& batch, const HybridConfig& config,
                         int state_layer, Tensor x, Tensor h) const {
  const DeltaConfig& c = config.delta;
  const Tensor in = ops::linear(ctx, h, *in_);
  const int64_t z_begin = c.conv_size(), b_begin = z_begin + c.value_size();
  const Tensor qkv =
      ops::short_conv(ctx, in.cols(0, c.conv_size()), conv_, {}, batch.windows, state_layer);
  GatedDeltaArgs args;
  args.layer = state_layer;
  args.num_key_heads = c.num_key_heads;
  args.num_value_heads = c.num_value_heads;
  args.key_dim = c.key_dim;
  args.value_dim = c.value_dim;
  args.order = c.order;
  args.decay = decay_;
  args.dt_bias = dt_bias_;
  const Tensor y =
      ops::gated_delta(ctx, qkv.cols(0, c.key_size()), qkv.cols(c.key_size(), c.key_size()),
                       qkv.cols(2 * c.key_size(), c.value_size()),
                       in.cols(b_begin + c.num_value_heads, c.num_value_heads),
                       in.cols(b_begin, c.num_value_heads), batch.windows, args);
  const Tensor gated =
      ops::gated_norm(ctx, y, in.cols(z_begin, c.value_size()), norm_,
                      {c.value_dim, config.rms_norm_eps, GateOrder::kNormThenGate, c.sigmoid_gate});
  ops::linear_add_(ctx, x, gated, *out_);
}

Result<void> HybridLayer::load(const HybridConfig& c, HybridConfig::Layer kind, float norm_add,
                               const std::string& prefix, const ModelSource& source,
                               Packer& packer) {
  INVAR_TRY(input_norm,
            source.vector(prefix + "input_layernorm", ".weight", c.hidden_size, norm_add));
  INVAR_TRY(post_attention_norm,
            source.vector(prefix + "post_attention_layernorm", ".weight", c.hidden_size, norm_add));
  if (kind.is_recurrent) {
    delta = std::make_unique<GatedDeltaNet>();
    INVAR_TRY_VOID(delta->load(c, prefix + "linear_attn.", source, packer));
  } else {
    attention = std::make_unique<GatedAttention>();
    INVAR_TRY_VOID(attention->load(c, norm_add, prefix + "self_attn.", source, packer));
  }
  if (kind.is_sparse) {
    moe = std::make_unique<MoeBlock>();
    return moe->load(c.moe, c.hidden_size, prefix + "mlp.", source, packer);
  }
  const std::string mlp = prefix + "mlp.";
  INVAR_TRY(const auto gate, source.matrix(mlp + "gate_proj", c.intermediate_size, c.hidden_size));
  INVAR_TRY(const auto up, source.matrix(mlp + "up_proj", c.intermediate_size, c.hidden_size));
  INVAR_TRY(const auto w, source.matrix(mlp + "down_proj", c.hidden_size, c.intermediate_size));
  INVAR_TRY(gate_up, packer.pack({{gate, up}, PartOrder::kGateAndUp}));
  INVAR_TRY(down, packer.pack(w));
  return {};
}

void HybridLayer::run_(ops::Context& ctx, const Batch& batch, const HybridConfig& c,
                       Tensor x) const {
  Tensor h = ops::rms_norm(ctx, x, input_norm, c.rms_norm_eps);
  if (delta)
    delta->add_(ctx, batch, c, cache_layer, x, h);
  else
    attention->add_(ctx, batch, c, cache_layer, x, h);

  h = ops::rms_norm(ctx, x, post_attention_norm, c.rms_norm_eps);
  if (moe) return moe->add_(ctx, x, h);
  ops::linear_add_(ctx, x, ops::gated_linear(ctx, h, *gate_up, Activation::kSilu), *down);
}

}  // namespace invar
