// (6) The layers of a hybrid decoder in order, and its MTP head, which is one more layer (section
// 10 of the specification); what a layer does is hybrid_layer.cc's.
#include "models/hybrid_decoder.h"

#include "base/check.h"
#include "models/hybrid_layer.h"
#include "models/needed_ops.h"
#include "models/token_tables.h"

namespace invar {
namespace {

class HybridDecoder : public Model {
 public:
  HybridDecoder(HybridConfig config, ModelInfo info) : config_(std::move(config)) {
    info_ = std::move(info);
  }

  Tensor forward(ops::Context& ctx, const Batch& batch) const override {
    const Tensor x = ops::embed(ctx, batch.token_ids, *tables_.embed_tokens);
    for (const HybridLayer& layer : layers_) layer.run_(ctx, batch, config_, x);
    return finish_rows(ctx, batch, x, norm_, config_.rms_norm_eps, tables_.head());
  }

  Tensor draft(ops::Context& ctx, const Batch& batch, Tensor hidden) const override {
    INVAR_CHECK(mtp_ != nullptr, "no MTP head is loaded");
    const int64_t size = config_.hidden_size;
    const Tensor both = ctx.arena.rows(hidden.num_rows, 2 * size);
    const PackedWeight& table = mtp_->embed_tokens ? *mtp_->embed_tokens : *tables_.embed_tokens;
    const Tensor next = ops::embed(ctx, batch.token_ids, table);
    ops::rms_norm_to(ctx, both.cols(0, size), next, mtp_->embedding_norm, config_.rms_norm_eps);
    ops::rms_norm_to(ctx, both.cols(size, size), hidden, mtp_->hidden_norm, config_.rms_norm_eps);
    const Tensor x = ops::linear(ctx, both, *mtp_->fc);
    mtp_->layer.run_(ctx, batch, config_, x);
    return finish_rows(ctx, batch, x, mtp_->norm, config_.rms_norm_eps,
                       mtp_->lm_head ? *mtp_->lm_head : tables_.head());
  }

  Result<void> load(const ModelSource& source, Packer& packer);

 private:
  Result<void> load_mtp(const ModelSource& source, Packer& packer, int kv_layer);

  struct Mtp {
    std::vector<float> embedding_norm, hidden_norm, norm;
    std::unique_ptr<PackedWeight> fc;
    std::unique_ptr<PackedWeight> embed_tokens, lm_head;  // empty: the trunk's
    HybridLayer layer;
  };

  HybridConfig config_;
  TokenTables tables_;
  std::vector<HybridLayer> layers_;
  std::vector<float> norm_;
  std::unique_ptr<Mtp> mtp_;
};

Result<void> HybridDecoder::load_mtp(const ModelSource& source, Packer& packer, int kv_layer) {
  const HybridConfig& c = config_;
  const auto norm = [&](const char* module) {
    return source.vector(module, ".weight", c.hidden_size, c.mtp_norm_add);
  };
  mtp_ = std::make_unique<Mtp>();
  INVAR_TRY(mtp_->embedding_norm, norm("mtp.pre_fc_norm_embedding"));
  INVAR_TRY(mtp_->hidden_norm, norm("mtp.pre_fc_norm_hidden"));
  if (source.has("mtp.norm")) {
    INVAR_TRY(mtp_->norm, norm("mtp.norm"));
  } else if (source.is_gguf()) {
    mtp_->norm = norm_;  // some files leave it out
  } else {
    return norm("mtp.norm").error();
  }
  INVAR_TRY(const auto fc, source.matrix("mtp.fc", c.hidden_size, 2 * c.hidden_size));
  INVAR_TRY(mtp_->fc, packer.pack(fc));
  if (source.has("mtp.embed_tokens")) {
    INVAR_TRY(const auto table, source.matrix("mtp.embed_tokens", c.vocab_size, c.hidden_size));
    INVAR_TRY(mtp_->embed_tokens, packer.pack(table));
  }
  if (source.has("mtp.lm_head")) {
    INVAR_TRY(const auto head, source.matrix("mtp.lm_head", c.vocab_size, c.hidden_size));
    INVAR_TRY(mtp_->lm_head, packer.pack(head, MatrixRole::kHead));
  }
  mtp_->layer.cache_layer = kv_layer;
  return mtp_->layer.load(c, {false, c.mtp_is_sparse}, c.mtp_norm_add, "mtp.layers.0.", source,
                          packer);
}

Result<void> HybridDecoder::load(const ModelSource& source, Packer& packer) {
  const HybridConfig& c = config_;
  packer.read_ahead(-1);
  packer.read_ahead(0);
  INVAR_TRY_VOID(tables_.load(c, source, packer));
  int num_kv_layers = 0, num_state_layers = 0;
  for (int i = 0; i < c.num_layers; ++i) {
    packer.read_ahead(i + 1);
    const HybridConfig::Layer kind = c.layers[static_cast<size_t>(i)];
    HybridLayer layer;
    layer.cache_layer = kind.is_recurrent ? num_state_layers++ : num_kv_layers++;
    INVAR_TRY_VOID(
        layer.load(c, kind, c.norm_add, "model.layers." + std::to_string(i) + ".", source, packer));
    layers_.push_back(std::move(layer));
  }
  INVAR_TRY(norm_, source.vector("model.norm", ".weight", c.hidden_size, c.norm_add));
  if (c.load_mtp) {
    packer.begin_mtp();
    INVAR_TRY_VOID(load_mtp(source, packer, num_kv_layers));
  }
  packer.finish(info_);
  return {};
}

}  // namespace

ModelPlan hybrid_plan(HybridConfig config, std::string_view family, bool has_mtp) {
  ModelPlan plan;
  plan.info = config.info();
  plan.info.has_mtp = has_mtp;
  NeededOps needed;
  const DeltaConfig& d = config.delta;
  for (const HybridConfig::Layer& layer : config.layers) {
    needed.moe = needed.moe || layer.is_sparse;
    if (layer.is_recurrent) {
      needed.recurrent = "gated_delta";
      plan.info.recurrent_layers.push_back({static_cast<int>(d.conv_size()), d.conv_kernel,
                                            d.num_value_heads, d.key_dim, d.value_dim});
    } else {
      if (config.output_gate && needed.recurrent == nullptr) needed.recurrent = "sigmoid_gate";
      plan.info.kv_layers.push_back(config.kv_layer());
    }
  }
  if (config.load_mtp) {
    plan.info.num_mtp_layers = 1;
    plan.info.kv_layers.push_back(config.kv_layer());
    needed.moe = needed.moe || config.mtp_is_sparse;
  }
  if (needed.moe) {
    plan.info.num_experts = config.moe.num_experts;
    plan.info.num_experts_per_tok = config.moe.num_experts_per_tok;
  }
  plan.tied = config.tied;
  plan.load = [config = std::move(config), needed, family](
                  const ModelSource& source, Packer& packer,
                  ModelInfo info) -> Result<std::unique_ptr<Model>> {
    INVAR_TRY_VOID(check_needed_ops(needed, family, packer.backend()));
    auto model = std::make_unique<HybridDecoder>(config, std::move(info));
    INVAR_TRY_VOID(model->load(source, packer));
    return std::unique_ptr<Model>(std::move(model));
  };
  return plan;
}

}  // namespace invar
