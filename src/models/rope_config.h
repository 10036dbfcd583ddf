// Rope frequencies from a config: default, linear, llama3 and yarn scaling (specs/dense.md sections
// 1, 2 and specs/qwen3_5.md section 7 for yarn).
#pragma once

#include "backend/backend.h"
#include "base/json.h"
#include "base/result.h"

namespace invar {

// `parameters`: {rope_theta, rope_type, factor, ...} as in rope_parameters, or an older config's
// rope_scaling with rope_theta put in. rotary_dim even. Unknown rope_type: kUnsupported. Of two
// keys for YaRN's magnitude, attention_factor (Hugging Face) replaces the default, gguf_attn_factor
// multiplies it (llama.cpp).
Result<RopeSpec> rope_spec(const Json& parameters, int rotary_dim);

// rope_parameters of a config in either form: the newer key, or rope_theta beside rope_scaling.
Result<Json> rope_parameters(const Json& config, double default_theta);

}  // namespace invar
