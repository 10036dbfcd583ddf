// The JSON body of a request, or the error that says why it is none.
#pragma once

#include <optional>
#include <string_view>

#include "base/json.h"
#include "server/http/error_body.h"

namespace invar::server {

// An object at the top, within the limits of JsonLimits.
std::optional<ApiError> parse_json_body(std::string_view body, Json& json);

}  // namespace invar::server
