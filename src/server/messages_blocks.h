// The messages of a Messages body, made of blocks, as the messages of a chat (specs/api.md 10.2).
#pragma once

#include <vector>

#include "server/chat_body.h"

namespace invar::server {

// Reads system and messages. Attribution lines, which change with every request and would spoil the
// prefix cache, are left out unless `keep_attribution`. True: the last message is an assistant's,
// to be continued.
bool read_messages(Fields& fields, bool keep_attribution, ChatBody& chat,
                   std::vector<Warning>& warnings);

}  // namespace invar::server
