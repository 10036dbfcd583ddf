// (6) The layers of a dense decoder: before it engine/model_runner.cc (5), which calls forward(),
// after it ops/ops.cc (7). Loading packs the weights that the layers read; what a config says is
// the family files' to know.
#include "models/dense_decoder.h"

#include "models/token_tables.h"

namespace invar {
namespace {

struct DenseLayer {
  std::vector<float> input_norm, post_attention_norm, pre_mlp_norm, post_mlp_norm;
  std::vector<float> q_norm, k_norm, qkv_bias, o_bias;
  std::unique_ptr<PackedWeight> qkv, o, gate_up, down;
};

class DenseDecoder : public Model {
 public:
  DenseDecoder(DenseConfig config, ModelInfo info) : config_(std::move(config)) {
    info_ = std::move(info);
  }

  Tensor forward(ops::Context& ctx, const Batch& batch) const override {
    const DenseConfig& c = config_;
    const float eps = c.rms_norm_eps;
    const int64_t q_size = int64_t{c.num_heads} * c.head_dim;
    const int64_t kv_size = int64_t{c.num_kv_heads} * c.head_dim;

    Tensor x = ops::embed(ctx, batch.token_ids, *tables_.embed_tokens, c.embed_scale);
    for (int i = 0; i < c.num_layers; ++i) {
      const DenseLayer& w = layers_[static_cast<size_t>(i)];
      const DenseConfig::Layer& kind = c.layers[static_cast<size_t>(i)];

      Tensor h = ops::rms_norm(ctx, x, w.input_norm, eps);
      const Tensor qkv = ops::linear(ctx, h, *w.qkv, w.qkv_bias);
      const Tensor q = qkv.cols(0, q_size);
      const Tensor k = qkv.cols(q_size, kv_size);
      const Tensor v = qkv.cols(q_size + kv_size, kv_size);
      if (c.qk_norm) {
        ops::head_rms_norm_(ctx, q, c.head_dim, w.q_norm, eps);
        ops::head_rms_norm_(ctx, k, c.head_dim, w.k_norm, eps);
      }
      ops::rope_(ctx, q, c.head_dim, batch.positions, c.ropes[kind.rope]);
      ops::rope_(ctx, k, c.head_dim, batch.positions, c.ropes[kind.rope]);
      h = ops::attention(ctx, q, k, v, batch.windows, attention_args(i));
      x = add_output(ctx, x, h, *w.o, w.o_bias, w.post_attention_norm);

      h = ops::rms_norm(ctx, x, w.pre_mlp_norm, eps);
      h = ops::gated_linear(ctx, h, *w.gate_up, c.activation);
      x = add_output(ctx, x, h, *w.down, {}, w.post_mlp_norm);
    }
    return finish_rows(ctx, batch, x, norm_, eps, tables_.head(), c.logit_softcap);
  }

  Result<void> load(const ModelSource& source, Packer& packer);

 private:
  // x + w h, or for gemma x + norm(w h).
  Tensor add_output(ops::Context& ctx, Tensor x, Tensor h, const PackedWeight& w,
                    ops::FloatSpan bias, ops::FloatSpan norm) const {
    if (config_.norm_of_outputs)
      return ops::rms_norm_add(ctx, ops::linear(ctx, h, w, bias), norm, config_.rms_norm_eps, x);
    ops::linear_add_(ctx, x, h, w, bias);
    return x;
  }

  AttentionArgs attention_args(int layer) const {
    AttentionArgs args;
    args.layer = layer;
    args.num_heads = config_.num_heads;
    args.num_kv_heads = config_.num_kv_heads;
    args.head_dim = config_.head_dim;
    args.scale = config_.attention_scale;
    args.sliding_window = config_.layers[static_cast<size_t>(layer)].sliding_window;
    args.softcap = config_.attention_softcap;
    return args;
  }

  DenseConfig config_;
  TokenTables tables_;
  std::vector<DenseLayer> layers_;
  std::vector<float> norm_;
};

Result<void> DenseDecoder::load(const ModelSource& source, Packer& packer) {
  const DenseConfig& c = config_;
  const int64_t q_size = int64_t{c.num_heads} * c.head_dim;
  const int64_t kv_size = int64_t{c.num_kv_heads} * c.head_dim;
  packer.read_ahead(-1);
  packer.read_ahead(0);
  INVAR_TRY_VOID(tables_.load(c, source, packer));

  for (int i = 0; i < c.num_layers; ++i) {
    packer.read_ahead(i + 1);
    const std::string layer = "model.layers." + std::to_string(i) + ".";
    const auto norm = [&](const char* module, int64_t size) {
      return source.vector(layer + module, ".weight", size, c.norm_add);
    };
    DenseLayer w;
    INVAR_TRY(w.input_norm, norm("input_layernorm", c.hidden_size));
    if (c.norm_of_outputs) {
      INVAR_TRY(w.post_attention_norm, norm("post_attention_layernorm", c.hidden_size));
      INVAR_TRY(w.pre_mlp_norm, norm("pre_feedforward_layernorm", c.hidden_size));
      INVAR_TRY(w.post_mlp_norm, norm("post_feedforward_layernorm", c.hidden_size));
    } else {
      INVAR_TRY(w.pre_mlp_norm, norm("post_attention_layernorm", c.hidden_size));
    }
    if (c.qk_norm) {
      INVAR_TRY(w.q_norm, norm("self_attn.q_norm", c.head_dim));
      INVAR_TRY(w.k_norm, norm("self_attn.k_norm", c.head_dim));
    }

    INVAR_TRY(auto q, source.matrix(layer + "self_attn.q_proj", q_size, c.hidden_size));
    INVAR_TRY(auto k, source.matrix(layer + "self_attn.k_proj", kv_size, c.hidden_size));
    INVAR_TRY(const auto v, source.matrix(layer + "self_attn.v_proj", kv_size, c.hidden_size));
    q.interleaved_head_dim = k.interleaved_head_dim = c.interleaved_head_dim;
    if (c.qkv_bias) {
      const std::pair<const char*, int64_t> parts[] = {{"self_attn.q_proj", q_size},
                                                       {"self_attn.k_proj", kv_size},
                                                       {"self_attn.v_proj", kv_size}};
      for (const auto& [module, size] : parts) {
        INVAR_TRY(const auto bias, source.vector(layer + module, ".bias", size));
        w.qkv_bias.insert(w.qkv_bias.end(), bias.begin(), bias.end());
      }
    }
    INVAR_TRY(w.qkv, packer.pack({{q, k, v}, PartOrder::kStacked, MatrixRole::kInner}));
    INVAR_TRY(const auto o, source.matrix(layer + "self_attn.o_proj", c.hidden_size, q_size));
    INVAR_TRY(w.o, packer.pack(o));
    if (c.o_bias) {
      INVAR_TRY(w.o_bias, source.vector(layer + "self_attn.o_proj", ".bias", c.hidden_size));
    }

    INVAR_TRY(const auto gate,
              source.matrix(layer + "mlp.gate_proj", c.intermediate_size, c.hidden_size));
    INVAR_TRY(const auto up,
              source.matrix(layer + "mlp.up_proj", c.intermediate_size, c.hidden_size));
    INVAR_TRY(w.gate_up, packer.pack({{gate, up}, PartOrder::kGateAndUp, MatrixRole::kInner}));
    INVAR_TRY(const auto down,
              source.matrix(layer + "mlp.down_proj", c.hidden_size, c.intermediate_size));
    INVAR_TRY(w.down, packer.pack(down));
    layers_.push_back(std::move(w));
  }
  INVAR_TRY(norm_, source.vector("model.norm", ".weight", c.hidden_size, c.norm_add));
  packer.finish(info_);
  return {};
}

// Which layers slide: layer_types where the config has it (transformers 4.53 and later).
Result<void> parse_layer_types(DenseConfig& c, const Json& config) {
  c.layers.resize(static_cast<size_t>(c.num_layers));
  const Json* types = config.find("layer_types");
  if (types == nullptr || types->is_null()) return {};
  if (!types->is_array() || types->items().size() != c.layers.size())
    return invalid_argument("'layer_types' must be an array of %d entries", c.num_layers);
  INVAR_TRY(const int64_t window, config.optional<int64_t>("sliding_window", 0));
  for (size_t i = 0; i < c.layers.size(); ++i) {
    const Json& type = types->items()[i];
    if (type == Json("sliding_attention")) {
      if (window < 1)
        return invalid_argument("'layer_types' has sliding_attention, but 'sliding_window' is %ld",
                                long{window});
      c.layers[i].sliding_window = window;
    } else if (!(type == Json("full_attention"))) {
      return unsupported("'layer_types' entry %zu is %s; known: full_attention, sliding_attention",
                         i, type.dump().c_str());
    }
  }
  return {};
}

}  // namespace

Result<DenseConfig> parse_dense_config(const ModelSource& source, const Json& config) {
  DenseConfig c;
  INVAR_TRY_VOID(parse_common_config(c, source, config));
  INVAR_TRY(c.intermediate_size, int_in_range(config, "intermediate_size", -1, 1 << 20));
  c.attention_scale = c.default_attention_scale();
  INVAR_TRY(const double attention_cap, config.optional<double>("attn_logit_softcapping", 0));
  INVAR_TRY(const double logit_cap, config.optional<double>("final_logit_softcapping", 0));
  c.attention_softcap = static_cast<float>(attention_cap);
  c.logit_softcap = static_cast<float>(logit_cap);
  INVAR_TRY_VOID(parse_layer_types(c, config));
  INVAR_TRY(const int rope_dim, config.optional<int>("rope_dim", c.head_dim));
  if (rope_dim != c.head_dim)
    return unsupported("rope over %d of %d dims of a head", rope_dim, c.head_dim);
  return c;
}

ModelPlan dense_plan(DenseConfig config) {
  ModelPlan plan;
  plan.info = config.info();
  plan.info.kv_layers.assign(static_cast<size_t>(config.num_layers), config.kv_layer());
  plan.tied = config.tied;
  plan.load = [config = std::move(config)](const ModelSource& source, Packer& packer,
                                           ModelInfo info) -> Result<std::unique_ptr<Model>> {
    auto model = std::make_unique<DenseDecoder>(config, std::move(info));
    INVAR_TRY_VOID(model->load(source, packer));
    return std::unique_ptr<Model>(std::move(model));
  };
  return plan;
}

}  // namespace invar
