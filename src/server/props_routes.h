// GET /props and /slots: what llama.cpp's server says of itself, for the tools that ask for it
// (specs/api.md 12.2, 12.3). Read only.
#pragma once

#include "server/http/router.h"
#include "server/model_routes.h"
#include "server/request_registry.h"

namespace invar::server {

// Both outlive the router. Without `slots` that route does not exist.
void add_props_routes(Router& router, const ServedModel& model, const RequestRegistry& requests,
                      bool slots);

}  // namespace invar::server
