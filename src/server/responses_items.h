// Input items of a Responses body as the messages of a chat (specs/api.md 9.2).
#pragma once

#include <vector>

#include "server/chat_body.h"

namespace invar::server {

// Reads input, a string or items, behind the messages that `chat` has.
void read_responses_input(Fields& fields, ChatBody& chat, std::vector<Warning>& warnings);

}  // namespace invar::server
