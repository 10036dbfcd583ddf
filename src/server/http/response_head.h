// Status line and headers of a response as bytes. Framing is the caller's: it says which body
// follows.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http/http_types.h"

namespace invar::server {

struct ResponseFraming {
  std::optional<uint64_t> content_length = {};
  bool chunked = false;  // neither: the body ends with the connection
  bool close = false;    // "Connection: close"
};

// With the headers that every response has. A name or value of `extra` that could not stand in a
// header line is left out.
std::string response_head(int status, std::string_view content_type, std::string_view request_id,
                          const std::vector<Header>& extra, const ResponseFraming& framing);

const char* reason_phrase(int status);

// One chunk of a chunked body; of no bytes, the last one.
std::string chunk(std::string_view bytes);

}  // namespace invar::server
