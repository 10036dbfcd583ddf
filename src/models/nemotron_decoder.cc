// (6) The layers of Nemotron-H: before it engine/model_runner.cc (5), which calls forward(), after
// it ops/ops.cc (7).
#include "models/nemotron_decoder.h"

#include <cmath>
#include <string>

#include "base/check.h"
#include "models/needed_ops.h"
#include "models/token_tables.h"
#include "ops/recurrent.h"

namespace invar {
namespace {

using Kind = NemotronConfig::Kind;

// A bias where the file has one: config flags and GGUF files need not agree on who says so.
Result<void> load_bias(std::vector<float>& bias, const std::string& module, int64_t size,
                       const ModelSource& source) {
  if (!source.has(module, ".bias")) return {};
  INVAR_TRY(bias, source.vector(module, ".bias", size));
  return {};
}

class Mamba2 {
 public:
  Result<void> load(const NemotronConfig& c, const std::string& prefix, const ModelSource& source,
                    Packer& packer) {
    INVAR_TRY(const auto in,
              source.matrix(prefix + "in_proj", c.inner_size() + c.conv_size() + c.mamba_num_heads,
                            c.hidden_size));
    INVAR_TRY(const auto out, source.matrix(prefix + "out_proj", c.hidden_size, c.inner_size()));
    INVAR_TRY(in_, packer.pack(in));
    INVAR_TRY(out_, packer.pack(out));
    INVAR_TRY_VOID(load_bias(in_bias_, prefix + "in_proj", in.num_rows, source));
    INVAR_TRY_VOID(load_bias(out_bias_, prefix + "out_proj", c.hidden_size, source));
    INVAR_TRY_VOID(load_bias(conv_bias_, prefix + "conv1d", c.conv_size(), source));

    INVAR_TRY(const auto taps,
              source.values(prefix + "conv1d", ".weight", {c.conv_size(), c.conv_kernel}));
    const auto num_channels = static_cast<size_t>(c.conv_size());
    const auto num_taps = static_cast<size_t>(c.conv_kernel);
    conv_.resize(taps.size());
    for (size_t channel = 0; channel < num_channels; ++channel)
      for (size_t tap = 0; tap < num_taps; ++tap)
        conv_[tap * num_channels + channel] = taps[channel * num_taps + tap];

    INVAR_TRY(decay_, source.vector(prefix + "A_log", "", c.mamba_num_heads));
    if (!source.is_gguf())  // GGUF files hold -exp(A_log)
      for (float& value : decay_) value = static_cast<float>(-std::exp(double{value}));
    INVAR_TRY(skip_, source.vector(prefix + "D", "", c.mamba_num_heads));
    INVAR_TRY(dt_bias_, source.vector(prefix + "dt_bias", "", c.mamba_num_heads));
    const std::vector<int64_t> norm_shape =
        source.is_gguf() ? std::vector<int64_t>{c.n_groups, c.inner_size() / c.n_groups}
                         : std::vector<int64_t>{c.inner_size()};
    INVAR_TRY(norm_, source.values(prefix + "norm", ".weight", norm_shape));
    return {};
  }

  void add_(ops::Context& ctx, const Batch& batch, const NemotronConfig& c, int state_layer,
            Tensor x, Tensor h) const {
    const int64_t inner = c.inner_size(), group = c.group_size();
    const Tensor in = ops::linear(ctx, h, *in_, in_bias_);
    const Tensor conv = ops::short_conv(ctx, in.cols(inner, c.conv_size()), conv_, conv_bias_,
                                        batch.windows, state_layer);
    SsdArgs args;
    args.layer = state_layer;
    args.num_heads = c.mamba_num_heads;
    args.head_dim = c.mamba_head_dim;
    args.num_groups = c.n_groups;
    args.state_size = c.ssm_state_size;
    args.decay = decay_;
    args.dt_bias = dt_bias_;
    args.skip = skip_;
    args.dt_min = c.dt_min;
    args.dt_max = c.dt_max;
    const Tensor y =
        ops::ssd(ctx, conv.cols(0, inner), conv.cols(inner, group), conv.cols(inner + group, group),
                 in.cols(inner + c.conv_size(), c.mamba_num_heads), batch.windows, args);
    const Tensor gated = ops::gated_norm(
        ctx, y, in.cols(0, inner), norm_,
        {static_cast<int>(inner / c.n_groups), c.rms_norm_eps, GateOrder::kGateThenNorm, false});
    ops::linear_add_(ctx, x, gated, *out_, out_bias_);
  }

 private:
  std::unique_ptr<PackedWeight> in_, out_;  // rows of in_: z, x, B, C, dt
  std::vector<float> in_bias_, out_bias_, conv_, conv_bias_, decay_, skip_, dt_bias_, norm_;
};

// Attention without positions.
class PlainAttention {
 public:
  Result<void> load(const NemotronConfig& c, const std::string& prefix, const ModelSource& source,
                    Packer& packer) {
    const int64_t q_size = int64_t{c.num_heads} * c.head_dim;
    const int64_t kv_size = int64_t{c.num_kv_heads} * c.head_dim;
    INVAR_TRY(const auto q, source.matrix(prefix + "q_proj", q_size, c.hidden_size));
    INVAR_TRY(const auto k, source.matrix(prefix + "k_proj", kv_size, c.hidden_size));
    INVAR_TRY(const auto v, source.matrix(prefix + "v_proj", kv_size, c.hidden_size));
    INVAR_TRY(const auto o, source.matrix(prefix + "o_proj", c.hidden_size, q_size));
    INVAR_TRY(qkv_, packer.pack({{q, k, v}}));
    INVAR_TRY(o_, packer.pack(o));
    return {};
  }

  void add_(ops::Context& ctx, const Batch& batch, const NemotronConfig& c, int kv_layer, Tensor x,
            Tensor h) const {
    const int64_t q_size = int64_t{c.num_heads} * c.head_dim;
    const int64_t kv_size = int64_t{c.num_kv_heads} * c.head_dim;
    const Tensor qkv = ops::linear(ctx, h, *qkv_);
    AttentionArgs args;
    args.layer = kv_layer;
    args.num_heads = c.num_heads;
    args.num_kv_heads = c.num_kv_heads;
    args.head_dim = c.head_dim;
    args.scale = c.default_attention_scale();
    const Tensor y = ops::attention(ctx, qkv.cols(0, q_size), qkv.cols(q_size, kv_size),
                                    qkv.cols(q_size + kv_size, kv_size), batch.windows, args);
    ops::linear_add_(ctx, x, y, *o_);
  }

 private:
  std::unique_ptr<PackedWeight> qkv_, o_;
};

// down(relu(up x)^2)
class TwoMatrices {
 public:
  Result<void> load(const NemotronConfig& c, const std::string& prefix, const ModelSource& source,
                    Packer& packer) {
    INVAR_TRY(const auto up, source.matrix(prefix + "up_proj", c.intermediate_size, c.hidden_size));
    INVAR_TRY(const auto down,
              source.matrix(prefix + "down_proj", c.hidden_size, c.intermediate_size));
    INVAR_TRY(up_, packer.pack(up));
    INVAR_TRY(down_, packer.pack(down));
    INVAR_TRY_VOID(load_bias(up_bias_, prefix + "up_proj", c.intermediate_size, source));
    return load_bias(down_bias_, prefix + "down_proj", c.hidden_size, source);
  }

  void add_(ops::Context& ctx, Tensor x, Tensor h) const {
    const Tensor inner = ops::linear(ctx, h, *up_, up_bias_);
    ops::relu2_(ctx, inner);
    ops::linear_add_(ctx, x, inner, *down_, down_bias_);
  }

 private:
  std::unique_ptr<PackedWeight> up_, down_;
  std::vector<float> up_bias_, down_bias_;
};

// One of the mixers, behind a norm.
struct Layer {
  std::vector<float> norm;
  std::unique_ptr<Mamba2> mamba;
  std::unique_ptr<PlainAttention> attention;
  std::unique_ptr<MoeBlock> moe;
  std::unique_ptr<TwoMatrices> mlp;
  int cache_layer = 0;  // of the KV cache or of the state cache

  // `prefix`: "backbone.layers.3."
  Result<void> load(const NemotronConfig& c, Kind kind, const std::string& prefix,
                    const ModelSource& source, Packer& packer) {
    INVAR_TRY(norm, source.vector(prefix + "norm", ".weight", c.hidden_size));
    const std::string mixer = prefix + "mixer.";
    switch (kind) {
      case Kind::kMamba:
        mamba = std::make_unique<Mamba2>();
        return mamba->load(c, mixer, source, packer);
      case Kind::kAttention:
        attention = std::make_unique<PlainAttention>();
        return attention->load(c, mixer, source, packer);
      case Kind::kMoe:
        moe = std::make_unique<MoeBlock>();
        return moe->load(c.moe, c.hidden_size, mixer, source, packer);
      case Kind::kMlp:
        mlp = std::make_unique<TwoMatrices>();
        return mlp->load(c, mixer, source, packer);
    }
    return {};
  }

  void run_(ops::Context& ctx, const Batch& batch, const NemotronConfig& c, Tensor x) const {
    const Tensor h = ops::rms_norm(ctx, x, norm, c.rms_norm_eps);
    if (mamba) return mamba->add_(ctx, batch, c, cache_layer, x, h);
    if (attention) return attention->add_(ctx, batch, c, cache_layer, x, h);
    if (moe) return moe->add_(ctx, x, h);
    mlp->add_(ctx, x, h);
  }
};

class NemotronDecoder : public Model {
 public:
  NemotronDecoder(NemotronConfig config, ModelInfo info) : config_(std::move(config)) {
    info_ = std::move(info);
  }

  Tensor forward(ops::Context& ctx, const Batch& batch) const override {
    const Tensor x = ops::embed(ctx, batch.token_ids, *tables_.embed_tokens);
    for (const Layer& layer : layers_) layer.run_(ctx, batch, config_, x);
    return finish_rows(ctx, batch, x, norm_, config_.rms_norm_eps, tables_.head());
  }

  Tensor draft(ops::Context& ctx, const Batch& batch, Tensor hidden) const override {
    INVAR_CHECK(mtp_ != nullptr, "no MTP head is loaded");
    const int64_t size = config_.hidden_size;
    const float eps = config_.rms_norm_eps;
    const Tensor both = ctx.arena.rows(hidden.num_rows, 2 * size);
    const Tensor next = ops::embed(ctx, batch.token_ids, *tables_.embed_tokens);
    ops::rms_norm_to(ctx, both.cols(0, size), next, mtp_->embedding_norm, eps);
    ops::rms_norm_to(ctx, both.cols(size, size), hidden, mtp_->hidden_norm, eps);
    const Tensor x = ops::linear(ctx, both, *mtp_->in);
    mtp_->attention.run_(ctx, batch, config_, x);
    mtp_->moe.run_(ctx, batch, config_, x);
    return finish_rows(ctx, batch, x, mtp_->norm, eps, tables_.head());
  }

  Result<void> load(const ModelSource& source, Packer& packer);

 private:
  Result<void> load_mtp(const ModelSource& source, Packer& packer, int kv_layer);

  struct Mtp {
    std::vector<float> embedding_norm, hidden_norm, norm;
    std::unique_ptr<PackedWeight> in;
    Layer attention, moe;
  };

  NemotronConfig config_;
  TokenTables tables_;
  std::vector<Layer> layers_;
  std::vector<float> norm_;
  std::unique_ptr<Mtp> mtp_;
};

Result<void> NemotronDecoder::load(const ModelSource& source, Packer& packer) {
  const NemotronConfig& c = config_;
  const std::string root = c.root;
  packer.read_ahead(-1);
  packer.read_ahead(0);
  INVAR_TRY_VOID(tables_.load(c, source, packer, (root + "embeddings").c_str()));
  int num_kv_layers = 0, num_state_layers = 0;
  for (int i = 0; i < c.num_layers; ++i) {
    packer.read_ahead(i + 1);
    const Kind kind = c.kinds[static_cast<size_t>(i)];
    Layer layer;
    if (kind == Kind::kMamba) layer.cache_layer = num_state_layers++;
    if (kind == Kind::kAttention) layer.cache_layer = num_kv_layers++;
    INVAR_TRY_VOID(layer.load(c, kind, root + "layers." + std::to_string(i) + ".", source, packer));
    layers_.push_back(std::move(layer));
  }
  INVAR_TRY(norm_, source.vector(root + "norm_f", ".weight", c.hidden_size));
  if (c.load_mtp) {
    packer.begin_mtp();
    INVAR_TRY_VOID(load_mtp(source, packer, num_kv_layers));
  }
  packer.finish(info_);
  return {};
}

// The last norm is an RMSNorm, as the vendor's engine has it (llama.cpp subtracts the mean first).
Result<void> NemotronDecoder::load_mtp(const ModelSource& source, Packer& packer, int kv_layer) {
  const NemotronConfig& c = config_;
  const auto norm = [&](const char* module) {
    return source.vector(module, ".weight", c.hidden_size);
  };
  mtp_ = std::make_unique<Mtp>();
  INVAR_TRY(mtp_->embedding_norm, norm("mtp.layers.0.enorm"));
  INVAR_TRY(mtp_->hidden_norm, norm("mtp.layers.0.hnorm"));
  INVAR_TRY(mtp_->norm, norm("mtp.layers.1.final_layernorm"));
  INVAR_TRY(const auto in, source.matrix("mtp.layers.0.eh_proj", c.hidden_size, 2 * c.hidden_size));
  INVAR_TRY(mtp_->in, packer.pack(in));
  mtp_->attention.cache_layer = kv_layer;
  INVAR_TRY_VOID(mtp_->attention.load(c, Kind::kAttention, "mtp.layers.0.", source, packer));
  return mtp_->moe.load(c, Kind::kMoe, "mtp.layers.1.", source, packer);
}

}  // namespace

ModelPlan nemotron_plan(NemotronConfig config, bool has_mtp) {
  ModelPlan plan;
  plan.info = config.info();
  plan.info.has_mtp = has_mtp;
  plan.embedding = std::string(config.root) + "embeddings";
  NeededOps needed;
  for (const Kind kind : config.kinds) {
    if (kind == Kind::kMamba) {
      needed.recurrent = "ssd";
      plan.info.recurrent_layers.push_back({static_cast<int>(config.conv_size()),
                                            config.conv_kernel, config.mamba_num_heads,
                                            config.ssm_state_size, config.mamba_head_dim});
    }
    if (kind == Kind::kAttention) plan.info.kv_layers.push_back(config.kv_layer());
    if (kind == Kind::kMoe) needed.moe = true;
    if (needed.recurrent == nullptr && (kind == Kind::kMoe || kind == Kind::kMlp))
      needed.recurrent = "relu2";
  }
  if (config.load_mtp) {
    plan.info.num_mtp_layers = 1;
    plan.info.kv_layers.push_back(config.kv_layer());
    needed.moe = true;
  }
  if (needed.moe) {
    plan.info.num_experts = config.moe.num_experts;
    plan.info.num_experts_per_tok = config.moe.num_experts_per_tok;
  }
  plan.tied = config.tied;
  plan.load = [config = std::move(config), needed](
                  const ModelSource& source, Packer& packer,
                  ModelInfo info) -> Result<std::unique_ptr<Model>> {
    INVAR_TRY_VOID(check_needed_ops(needed, "nemotron_h", packer.backend()));
    auto model = std::make_unique<NemotronDecoder>(config, std::move(info));
    INVAR_TRY_VOID(model->load(source, packer));
    return std::unique_ptr<Model>(std::move(model));
  };
  return plan;
}

}  // namespace invar
