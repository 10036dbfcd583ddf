// Server-sent events as the three APIs frame them: chat and completions send bare data lines,
// Responses and Messages name each event. Text is whole UTF-8 already (tokenizer's Detokenizer).
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "server/http/http_types.h"

namespace invar::server {

// "data: JSON\n\n". `json` is one line, as Json::dump() makes it.
std::string sse_data(std::string_view json);
// "event: TYPE\ndata: JSON\n\n"; `json` holds the same TYPE as its "type".
std::string sse_event(std::string_view type, std::string_view json);

inline constexpr std::string_view kSseDone = "data: [DONE]\n\n";
inline constexpr std::string_view kSsePingComment = ": ping\n\n";
inline constexpr std::string_view kSsePingMessages = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

// The head of a chat or completions stream, or of a Messages stream: headers, pings, error event.
// Responses streams replace error_event by their response.failed, which holds the whole object.
StreamHead sse_head(ApiStyle style, std::string_view request_id,
                    std::chrono::milliseconds ping_interval);

}  // namespace invar::server
