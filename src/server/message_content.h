// MessageContent: the parts of a reply as the content blocks of a message, and the events that tell
// how they grow (specs/api.md 10.4). A message that is not streamed is built the same way.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/chat_reply.h"

namespace invar::server {

class MessageContent {
 public:
  // Gets an event's type and the rest of its fields. False: nobody listens any more.
  using Emit = std::function<bool(std::string_view type, Json fields)>;

  // `emit` may be empty. `hides_thinking`: thinking blocks have empty text. `reply` outlives this.
  MessageContent(const ChatReply& reply, bool hides_thinking, Emit emit)
      : reply_(reply), hides_thinking_(hides_thinking), emit_(std::move(emit)) {}

  bool add(const ChatReply::Part& part);
  // Ends the last block: whole, or cut by a limit.
  bool finish(bool is_cut);
  const Json& blocks() const { return blocks_; }

 private:
  enum class Kind { kNone, kThinking, kText, kToolUse };

  bool open(Kind kind, const std::string& name = "");
  bool close(bool is_cut);
  bool write_delta(const char* type, const char* key, const std::string& text);
  bool emit(std::string_view type, Json fields);
  Json block(bool is_begin) const;

  const ChatReply& reply_;
  const bool hides_thinking_;
  const Emit emit_;
  Json blocks_ = Json::array();
  size_t num_calls_ = 0;

  // The block that grows now.
  Kind kind_ = Kind::kNone;
  std::string text_, id_, name_;
};

}  // namespace invar::server
