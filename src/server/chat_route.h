// POST /v1/chat/completions: the answer, whole or as a stream (specs/api.md 5.2 to 5.4).
#pragma once

#include "server/generation_fields.h"
#include "server/http/router.h"
#include "server/model_routes.h"

namespace invar::server {

// Also without /v1. `served` and `options` outlive the router.
void add_chat_routes(Router& router, const ServedModel& served, const ApiOptions& options);

}  // namespace invar::server
