// What Engine::open does that is worth testing by itself.
#pragma once

#include "base/json.h"
#include "invar/invar.h"

namespace invar {

// Sampling defaults of generation_config.json (null: none). do_sample false means greedy. Values
// that no request could ask for are ignored with a log line.
SamplingParams default_sampling(const Json& generation_config, int32_t vocab_size);

}  // namespace invar
