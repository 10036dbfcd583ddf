// Ids of requests and of what replies contain: a prefix and 24 random letters and digits.
#pragma once

#include <string>
#include <string_view>

namespace invar::server {

// "req_" + 24 of [A-Za-z0-9], from the system's random source.
std::string new_id(std::string_view prefix);

// What a client sent as X-Request-Id when that is [A-Za-z0-9._-]{1,128}, else a new one.
std::string request_id_or_new(std::string_view sent);

}  // namespace invar::server
