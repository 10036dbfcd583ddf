// Where messages stand before the template sees them (specs/api.md 4.15): system texts where the
// template shows them, neighbours of one role joined where it refuses them, parts as one text.
#pragma once

#include <vector>

#include "base/json.h"
#include "server/chat_model.h"
#include "server/fields.h"

namespace invar::server {

// `messages`: an array that was checked (roles, contents). Later messages keep their place in the
// prompt, so that a conversation that grows keeps its prefix.
Json lay_out_messages(const Json& messages, const ChatModel& model, std::vector<Warning>& warnings);

// Null means absent.
bool has_tool_calls(const Json& message);

}  // namespace invar::server
