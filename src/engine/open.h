// What Engine::open does that is worth testing by itself.
#pragma once

#include <functional>
#include <memory>

#include "backend/backend.h"
#include "base/json.h"
#include "invar/invar.h"

namespace invar {

// Sampling defaults of generation_config.json (null: none). do_sample false means greedy. Values
// that no request could ask for are ignored with a log line.
SamplingParams default_sampling(const Json& generation_config, int32_t vocab_size);

// Engine::open(), where `wrap` gets the backend before anything is loaded and returns what the
// engine uses in its place (backend/timed_backend.h).
using WrapBackend = std::function<std::unique_ptr<Backend>(std::unique_ptr<Backend>)>;
Result<std::unique_ptr<Engine>> open_engine_with(const EngineOptions& options,
                                                 const WrapBackend& wrap);

}  // namespace invar
