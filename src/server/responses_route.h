// POST /v1/responses, whole or as a stream of events, and /v1/responses/input_tokens
// (specs/api.md 9, 11.4).
#pragma once

#include "server/chat_route.h"

namespace invar::server {

// `options` outlive the router.
void add_responses_routes(Router& router, EngineOf engine, const ApiOptions& options);

}  // namespace invar::server
