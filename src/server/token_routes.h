// /tokenize, /detokenize, /apply-template and /v1/chat/completions/input_tokens (specs/api.md
// section 11): what a prompt is to the model, without running it.
#pragma once

#include "server/generation_fields.h"
#include "server/http/router.h"
#include "server/model_routes.h"

namespace invar::server {

void add_token_routes(Router& router, const ServedModel& served, const ApiOptions& options);

}  // namespace invar::server
