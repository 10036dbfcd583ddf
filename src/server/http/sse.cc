#include "server/http/sse.h"

#include "base/check.h"

namespace invar::server {

std::string sse_data(std::string_view json) {
  // Json::dump() escapes control characters: a line break would cut the event in two.
  INVAR_CHECK(json.find_first_of("\r\n") == std::string_view::npos, "a line break in an event");
  std::string event = "data: ";
  return (event += json) += "\n\n";
}

std::string sse_event(std::string_view type, std::string_view json) {
  std::string event = "event: ";
  return ((event += type) += "\n") += sse_data(json);
}

StreamHead sse_head(ApiStyle style, std::string_view request_id,
                    std::chrono::milliseconds ping_interval) {
  StreamHead head;
  head.headers = {{"X-Accel-Buffering", "no"}};
  head.ping_interval = ping_interval;
  if (style == ApiStyle::kMessages) {
    head.ping = kSsePingMessages;
    head.error_event = [id = std::string(request_id)](const ApiError& error, int64_t) {
      return sse_event("error", error_json(ApiStyle::kMessages, error, id));
    };
  } else {
    head.ping = kSsePingComment;
    head.error_event = [](const ApiError& error, int64_t) {
      return sse_data(error_json(ApiStyle::kOpenAi, error, ""));
    };
  }
  return head;
}

}  // namespace invar::server
