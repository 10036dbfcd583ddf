// POST /v1/messages, whole or as a stream of events, and /v1/messages/count_tokens
// (specs/api.md 10).
#pragma once

#include "server/generation_fields.h"
#include "server/http/router.h"
#include "server/model_routes.h"

namespace invar::server {

// `served` and `options` outlive the router.
void add_messages_routes(Router& router, const ServedModel& served, const ApiOptions& options);

}  // namespace invar::server
