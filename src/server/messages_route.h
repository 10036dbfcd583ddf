// POST /v1/messages, whole or as a stream of events, and /v1/messages/count_tokens
// (specs/api.md 10).
#pragma once

#include "server/chat_route.h"

namespace invar::server {

// `options` outlive the router.
void add_messages_routes(Router& router, EngineOf engine, const ApiOptions& options);

}  // namespace invar::server
