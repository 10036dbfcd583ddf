// POST /v1/completions: raw prompts, continued (specs/api.md section 8).
#pragma once

#include "server/chat_route.h"

namespace invar::server {

void add_completions_routes(Router& router, EngineOf engine, const ApiOptions& options);

}  // namespace invar::server
