// POST /v1/chat/completions: the answer, whole or as a stream (specs/api.md 5.2 to 5.4).
#pragma once

#include <functional>

#include "server/generation_fields.h"
#include "server/http/router.h"

namespace invar::server {

// The engine that answers now; never null once routes that need it are reached.
using EngineOf = std::function<Engine*()>;

// Also without /v1. `options` outlive the router.
void add_chat_routes(Router& router, EngineOf engine, const ApiOptions& options);

}  // namespace invar::server
