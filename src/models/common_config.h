// What every decoder's config says, with ranges checked; families add what only they have.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/result.h"
#include "models/model.h"
#include "models/model_source.h"

namespace invar {

struct CommonConfig {
  int hidden_size = 0;
  int num_layers = 0;
  int num_heads = 0;
  int num_kv_heads = 0;
  int head_dim = 0;
  int vocab_size = 0;
  int64_t max_position_embeddings = 0;
  float rms_norm_eps = 0;
  bool tied = false;  // the head is the embedding, unless the file carries its own

  float default_attention_scale() const;  // 1 / sqrt(head_dim)
  KvLayerShape kv_layer() const { return {num_kv_heads, head_dim}; }
  // The sizes that `invar info` prints; layers with keys or states are the family's to add.
  ModelInfo info() const;
};

// `config`: source.config(), with the family's defaults filled in where it has any.
Result<void> parse_common_config(CommonConfig& c, const ModelSource& source, const Json& config);

// An integer of 1 to `max`; fallback < 0: it must be there.
Result<int> int_in_range(const Json& config, const char* key, int fallback, int max);

// Sets what the config leaves out or has as null.
void set_default(Json& config, const char* key, Json value);

// The switch that decides an activation says what this family has.
Result<void> expect_activation(const Json& config, const char* key, std::string_view expected);

}  // namespace invar
