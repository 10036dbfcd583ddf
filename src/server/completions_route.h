// POST /v1/completions: raw prompts, continued (specs/api.md section 8).
#pragma once

#include "server/generation_fields.h"
#include "server/http/router.h"
#include "server/model_routes.h"

namespace invar::server {

void add_completions_routes(Router& router, const ServedModel& served, const ApiOptions& options);

}  // namespace invar::server
