// ChatModel: what the served model's template and vocabulary can do, found once by rendering small
// conversations. Requests are laid out and refused by it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "invar/invar.h"
#include "server/tool_calls.h"

namespace invar::server {

struct ChatModel {
  ToolSupport tools;
  bool has_reasoning = false;        // <think> is a token
  bool system_anywhere = false;      // system messages are shown wherever they stand
  bool same_role_twice = true;       // two messages of one role may follow each other
  bool knows_thinking = false;       // enable_thinking changes the prompt
  bool knows_effort = false;         // reasoning_effort does
  std::vector<std::string> efforts;  // those that it takes, weakest first; when it knows them

  class Once;
};

// All of specs/api.md's efforts, weakest first.
const std::vector<std::string>& all_efforts();

class ChatModel::Once {
 public:
  const ChatModel& of(const Engine& engine);

 private:
  std::once_flag once_;
  ChatModel model_;
};

}  // namespace invar::server
