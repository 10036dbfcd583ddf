// The response object of /v1/responses (specs/api.md 9.5), as it begins and as it ends. Every key
// is always there.
#pragma once

#include <cstdint>
#include <string>

#include "server/chat_reply.h"
#include "server/responses_request.h"

namespace invar::server {

// In progress: nothing has come yet.
Json new_response(const ResponsesRequest& request, const ChatRequest& chat, const std::string& id,
                  int64_t created);

// How `reply`, whose only choice has ended, made it end.
void end_response(Json& response, const ChatReply& reply, Json output);

// That it failed. `output`: items that were whole by then.
void fail_response(Json& response, const ApiError& error, Json output);

}  // namespace invar::server
