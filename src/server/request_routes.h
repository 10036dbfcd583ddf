// GET and DELETE /v1/requests: what runs, and an end to it (specs/api.md section 14).
#pragma once

#include "server/http/router.h"
#include "server/request_registry.h"

namespace invar::server {

// `registry` outlives the router.
void add_request_routes(Router& router, RequestRegistry& registry);

}  // namespace invar::server
