// Llama 2 and 3.x, SmolLM2 and relatives: plain RMSNorm, SwiGLU, no biases by default
// (specs/dense.md section 2).
#include "models/dense_decoder.h"
#include "models/rope_config.h"

namespace invar {
namespace {

Result<ModelPlan> plan(ModelSource& source, const LoadOptions&) {
  const Json& config = source.config();
  INVAR_TRY(auto c, parse_dense_config(source, config));
  INVAR_TRY_VOID(expect_activation(config, "hidden_act", "silu"));
  INVAR_TRY(const bool mlp_bias, config.optional<bool>("mlp_bias", false));
  if (mlp_bias) return unsupported("'mlp_bias' is true: biases in the MLP are not supported");
  // The flag speaks of q, k, v and o together; GGUF files only show it by the tensors.
  INVAR_TRY(c.qkv_bias,
            config.optional<bool>("attention_bias", source.find("model.layers.0.self_attn.q_proj",
                                                                ".bias") != nullptr));
  c.o_bias = c.qkv_bias && source.find("model.layers.0.self_attn.o_proj", ".bias") != nullptr;

  INVAR_TRY(const auto parameters, rope_parameters(config, 10000.0));
  INVAR_TRY(auto rope, rope_spec(parameters, c.head_dim));
  if (source.is_gguf()) {
    c.interleaved_head_dim = c.head_dim;
    // Llama 3's scaling comes as divisors instead of parameters.
    if (source.find("rope_freqs") != nullptr) {
      INVAR_TRY(const auto divisors, source.vector("rope_freqs", ".weight", c.head_dim / 2));
      for (size_t i = 0; i < divisors.size(); ++i) rope.inv_freq[i] /= double{divisors[i]};
    }
  }
  c.ropes = {std::move(rope)};
  return dense_plan(std::move(c));
}

}  // namespace

extern const ModelFamily kLlamaFamily = {"llama",   {"LlamaForCausalLM"}, {"llama"},
                                         {"llama"}, &common_gguf_names(), plan};

}  // namespace invar
