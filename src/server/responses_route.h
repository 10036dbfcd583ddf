// POST /v1/responses, whole or as a stream of events, and /v1/responses/input_tokens
// (specs/api.md 9, 11.4).
#pragma once

#include "server/generation_fields.h"
#include "server/http/router.h"
#include "server/model_routes.h"

namespace invar::server {

// `served` and `options` outlive the router.
void add_responses_routes(Router& router, const ServedModel& served, const ApiOptions& options);

}  // namespace invar::server
