// Where experts stand differs: MLX and GGUF stack each of the three matrices over all experts,
// Hugging Face stacks gate and up together ("fused") or keeps every expert by itself.
#include "models/moe_block.h"

#include "ops/recurrent.h"

namespace invar {
namespace {

struct Experts {
  std::vector<MatrixView> up;    // gate_0, up_0, gate_1, ... or up_0, up_1, ...
  std::vector<MatrixView> down;  // down_0, down_1, ...
};

struct Shapes {
  int64_t num_experts, intermediate_size, input_size;
};

std::vector<MatrixView> split(const MatrixView& stack, int64_t num_parts) {
  const int64_t num_rows = stack.num_rows / num_parts;
  std::vector<MatrixView> parts;
  for (int64_t i = 0; i < num_parts; ++i) parts.push_back(rows_of(stack, i * num_rows, num_rows));
  return parts;
}

Result<Experts> find_stacked(const Shapes& s, bool is_gated, const std::string& prefix,
                             const ModelSource& source) {
  const char* up_name = is_gated ? "switch_mlp.up_proj" : "switch_mlp.fc1";
  const char* down_name = is_gated ? "switch_mlp.down_proj" : "switch_mlp.fc2";
  const std::vector<int64_t> up_shape = {s.num_experts, s.intermediate_size, s.input_size};
  Experts experts;
  INVAR_TRY(const auto up, source.stack(prefix + up_name, ".weight", up_shape));
  experts.up = split(up, s.num_experts);
  if (is_gated) {
    INVAR_TRY(const auto gate, source.stack(prefix + "switch_mlp.gate_proj", ".weight", up_shape));
    std::vector<MatrixView> both;
    for (int64_t e = 0; e < s.num_experts; ++e) {
      both.push_back(rows_of(gate, e * s.intermediate_size, s.intermediate_size));
      both.push_back(experts.up[static_cast<size_t>(e)]);
    }
    experts.up = std::move(both);
  }
  INVAR_TRY(const auto down, source.stack(prefix + down_name, ".weight",
                                          {s.num_experts, s.input_size, s.intermediate_size}));
  experts.down = split(down, s.num_experts);
  return experts;
}

// `suffix`: Hugging Face's parameters have none, quantized modules have ".weight".
Result<Experts> find_fused(const Shapes& s, bool is_gated, const std::string& prefix,
                           std::string_view suffix, const ModelSource& source) {
  Experts experts;
  const int64_t num_up = is_gated ? 2 : 1;
  INVAR_TRY(const auto up,
            source.stack(prefix + (is_gated ? "experts.gate_up_proj" : "experts.up_proj"), suffix,
                         {s.num_experts, num_up * s.intermediate_size, s.input_size}));
  experts.up = split(up, num_up * s.num_experts);
  // GGUF files may have gate and up in one and down as ever.
  const bool is_apart = source.is_gguf();
  INVAR_TRY(const auto down,
            source.stack(prefix + (is_apart ? "switch_mlp.down_proj" : "experts.down_proj"), suffix,
                         {s.num_experts, s.input_size, s.intermediate_size}));
  experts.down = split(down, s.num_experts);
  return experts;
}

Result<Experts> find_single(const Shapes& s, bool is_gated, const std::string& prefix,
                            const ModelSource& source) {
  Experts experts;
  for (int64_t e = 0; e < s.num_experts; ++e) {
    const std::string expert = prefix + "experts." + std::to_string(e) + ".";
    if (is_gated) {
      INVAR_TRY(const auto gate,
                source.matrix(expert + "gate_proj", s.intermediate_size, s.input_size));
      experts.up.push_back(gate);
    }
    INVAR_TRY(const auto up, source.matrix(expert + "up_proj", s.intermediate_size, s.input_size));
    INVAR_TRY(const auto down,
              source.matrix(expert + "down_proj", s.input_size, s.intermediate_size));
    experts.up.push_back(up);
    experts.down.push_back(down);
  }
  return experts;
}

Result<Experts> find_experts(const Shapes& s, bool is_gated, const std::string& prefix,
                             const ModelSource& source) {
  if (source.has(prefix + (is_gated ? "switch_mlp.up_proj" : "switch_mlp.fc1")))
    return find_stacked(s, is_gated, prefix, source);
  for (const char* suffix : {"", ".weight"})
    if (source.has(prefix + (is_gated ? "experts.gate_up_proj" : "experts.up_proj"), suffix))
      return find_fused(s, is_gated, prefix, suffix, source);
  return find_single(s, is_gated, prefix, source);
}

}  // namespace

Result<void> check_moe_config(const MoeConfig& c) {
  if (c.num_experts_per_tok > c.num_experts)
    return invalid_argument("'num_experts_per_tok' is %d, but there are %d experts",
                            c.num_experts_per_tok, c.num_experts);
  if (c.num_experts % c.n_group != 0 || c.topk_group > c.n_group ||
      c.num_experts_per_tok > c.topk_group * (c.num_experts / c.n_group))
    return invalid_argument(
        "'n_group' %d and 'topk_group' %d do not fit %d experts, of which a token takes %d",
        c.n_group, c.topk_group, c.num_experts, c.num_experts_per_tok);
  return {};
}

Result<void> MoeBlock::load(const MoeConfig& config, int hidden_size, const std::string& prefix,
                            const ModelSource& source, Packer& packer) {
  config_ = config;
  const MoeConfig& c = config_;
  const bool is_gated = c.activation != Activation::kRelu2;

  PackRequest router{{}, PartOrder::kStacked, MatrixRole::kRouter};
  INVAR_TRY(const auto gate, source.matrix(prefix + "gate", c.num_experts, hidden_size));
  router.parts.push_back(gate);
  if (c.shared_gate) {
    INVAR_TRY(const auto shared, source.matrix(prefix + "shared_expert_gate", 1, hidden_size));
    router.parts.push_back(shared);
  }
  INVAR_TRY(router_, packer.pack(std::move(router)));
  if (c.correction_bias) {
    INVAR_TRY(correction_bias_,
              source.vector(prefix + "gate.e_score_correction_bias", "", c.num_experts));
  }

  const int input_size = c.latent_size > 0 ? c.latent_size : hidden_size;
  INVAR_TRY(Experts experts, find_experts({c.num_experts, c.intermediate_size, input_size},
                                          is_gated, prefix, source));
  PackRequest up{std::move(experts.up), is_gated ? PartOrder::kGateAndUp : PartOrder::kStacked};
  PackRequest down{std::move(experts.down)};
  up.num_experts = down.num_experts = c.num_experts;
  INVAR_TRY(up_, packer.pack(std::move(up), c.read_share()));
  INVAR_TRY(down_, packer.pack(std::move(down), c.read_share()));

  const auto load_bias = [&](std::vector<float>& bias, const std::string& module,
                             int64_t size) -> Result<void> {
    if (!c.shared_bias || !source.has(module, ".bias")) return {};
    INVAR_TRY(bias, source.vector(module, ".bias", size));
    return {};
  };
  if (c.latent_size > 0) {
    const std::string down_name = prefix + "fc1_latent_proj", up_name = prefix + "fc2_latent_proj";
    INVAR_TRY(const auto to_latent, source.matrix(down_name, c.latent_size, hidden_size));
    INVAR_TRY(const auto from_latent, source.matrix(up_name, hidden_size, c.latent_size));
    INVAR_TRY(latent_down_, packer.pack(to_latent));
    INVAR_TRY(latent_up_, packer.pack(from_latent));
    INVAR_TRY_VOID(load_bias(latent_down_bias_, down_name, c.latent_size));
    INVAR_TRY_VOID(load_bias(latent_up_bias_, up_name, hidden_size));
  }
  if (c.shared_intermediate_size == 0) return {};
  const std::string shared = prefix + std::string(c.shared_name) + ".";
  const int64_t size = c.shared_intermediate_size;
  INVAR_TRY(const auto shared_up, source.matrix(shared + "up_proj", size, hidden_size));
  INVAR_TRY(const auto shared_down, source.matrix(shared + "down_proj", hidden_size, size));
  if (is_gated) {
    INVAR_TRY(const auto shared_gate, source.matrix(shared + "gate_proj", size, hidden_size));
    INVAR_TRY(shared_up_, packer.pack({{shared_gate, shared_up}, PartOrder::kGateAndUp}));
  } else {
    INVAR_TRY(shared_up_, packer.pack(shared_up));
  }
  INVAR_TRY(shared_down_, packer.pack(shared_down));
  INVAR_TRY_VOID(load_bias(shared_up_bias_, shared + "up_proj", size));
  return load_bias(shared_down_bias_, shared + "down_proj", hidden_size);
}

void MoeBlock::add_(ops::Context& ctx, Tensor x, Tensor h) const {
  const MoeConfig& c = config_;
  MoeArgs args;
  args.num_experts = c.num_experts;
  args.num_experts_per_tok = c.num_experts_per_tok;
  args.score = c.score;
  args.correction_bias = correction_bias_;
  args.n_group = c.n_group;
  args.topk_group = c.topk_group;
  args.norm_topk_prob = c.norm_topk_prob;
  args.norm_eps = c.norm_eps;
  args.routed_scaling_factor = c.routed_scaling_factor;
  args.activation = c.activation;

  const Tensor scores = ops::router(ctx, h, *router_);
  const Tensor logits = scores.cols(0, c.num_experts);
  if (latent_down_ == nullptr) {
    ops::moe_add_(ctx, x, h, logits, *up_, *down_, args);
  } else {
    const Tensor latent = ops::linear(ctx, h, *latent_down_, latent_down_bias_);
    const Tensor y = ops::moe(ctx, latent, logits, *up_, *down_, args);
    ops::linear_add_(ctx, x, y, *latent_up_, latent_up_bias_);
  }
  if (shared_up_ == nullptr) return;
  if (c.activation == Activation::kRelu2) {
    const Tensor inner = ops::linear(ctx, h, *shared_up_, shared_up_bias_);
    ops::relu2_(ctx, inner);
    ops::linear_add_(ctx, x, inner, *shared_down_, shared_down_bias_);
    return;
  }
  const Tensor inner = ops::gated_linear(ctx, h, *shared_up_, c.activation);
  if (!c.shared_gate) return ops::linear_add_(ctx, x, inner, *shared_down_);
  ops::add_gated_(ctx, x, ops::linear(ctx, inner, *shared_down_), scores.cols(c.num_experts, 1));
}

}  // namespace invar
