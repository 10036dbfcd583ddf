// GGUF metadata -> the keys of config.json (specs/weights.md section 3.4), so that a family parses
// one form. Keys that only one family has are read by that family from checkpoint.metadata.
#include "models/model_source.h"

namespace invar {
namespace {

// Copies "<arch>.<gguf_key>" to `key` where present. Arrays with a value a layer stay what they are
// and fail the reader's kind check.
void copy_key(Json& config, const char* key, const Json& metadata, const std::string& gguf_key) {
  if (const Json* value = uniform_value(metadata.find(gguf_key))) config.set(key, *value);
}

}  // namespace

Result<Json> config_from_gguf(const Checkpoint& checkpoint) {
  const Json& metadata = checkpoint.metadata;
  INVAR_TRY(const auto arch, metadata.required<std::string>("general.architecture"));
  Json config = Json::object();
  config.set("gguf_architecture", arch);
  const std::pair<const char*, const char*> keys[] = {
      {"hidden_size", "embedding_length"},
      {"intermediate_size", "feed_forward_length"},
      {"num_hidden_layers", "block_count"},
      {"num_attention_heads", "attention.head_count"},
      {"num_key_value_heads", "attention.head_count_kv"},
      {"head_dim", "attention.key_length"},
      {"rms_norm_eps", "attention.layer_norm_rms_epsilon"},
      {"max_position_embeddings", "context_length"},
      {"sliding_window", "attention.sliding_window"},
      {"attn_logit_softcapping", "attn_logit_softcapping"},
      {"final_logit_softcapping", "final_logit_softcapping"},
  };
  for (const auto& [key, gguf_key] : keys) copy_key(config, key, metadata, arch + "." + gguf_key);

  // The embedding says how large the vocabulary is; vocab_size is often absent.
  if (const TensorInfo* embedding = checkpoint.find("token_embd.weight"))
    config.set("vocab_size", embedding->matrix.num_rows);

  Json rope = Json::object();
  INVAR_TRY(const double theta, metadata.optional<double>(arch + ".rope.freq_base", 10000.0));
  rope.set("rope_theta", theta);
  // A factor without a type is a linear one (llama.cpp).
  const bool scaled = metadata.find(arch + ".rope.scaling.factor") != nullptr;
  INVAR_TRY(auto type, metadata.optional<std::string>(arch + ".rope.scaling.type",
                                                      scaled ? "linear" : "none"));
  rope.set("rope_type", type == "none" ? std::string("default") : type);
  copy_key(rope, "factor", metadata, arch + ".rope.scaling.factor");
  copy_key(rope, "original_max_position_embeddings", metadata,
           arch + ".rope.scaling.original_context_length");
  copy_key(rope, "gguf_attn_factor", metadata, arch + ".rope.scaling.attn_factor");
  copy_key(rope, "beta_fast", metadata, arch + ".rope.scaling.yarn_beta_fast");
  copy_key(rope, "beta_slow", metadata, arch + ".rope.scaling.yarn_beta_slow");
  copy_key(config, "rope_dim", metadata, arch + ".rope.dimension_count");
  config.set("rope_parameters", std::move(rope));
  return config;
}

}  // namespace invar
