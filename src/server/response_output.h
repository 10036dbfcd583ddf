// ResponseOutput: the parts of a reply as the output items of a response, and the events that tell
// how they grow (specs/api.md 9.4, 9.5). A response that is not streamed is built the same way.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "server/chat_reply.h"
#include "server/custom_input.h"
#include "server/responses_tools.h"

namespace invar::server {

class ResponseOutput {
 public:
  // Gets an event's type and the rest of its fields. False: nobody listens any more.
  using Emit = std::function<bool(std::string_view type, Json fields)>;

  // `emit` may be empty. All arguments outlive this.
  ResponseOutput(const ChatReply& reply, const CallerTools& tools, Emit emit)
      : reply_(reply), tools_(tools), emit_(std::move(emit)) {}

  bool add(const ChatReply::Part& part);
  // Ends the last item: whole, or cut by a limit.
  bool finish(bool is_cut);
  const Json& items() const { return items_; }

 private:
  enum class Kind { kNone, kReasoning, kMessage, kFunction, kCustom };

  bool open(Kind kind);
  bool open_call(const std::string& rendered_name);
  bool close(const char* status);
  bool write_delta(const std::string& text, const std::vector<TokenEntry>& logprobs);
  bool emit(std::string_view type, Json fields);

  Json place(bool has_content) const;  // the fields that say which item an event is about
  Json part(bool is_begin) const;
  Json item(const char* status) const;
  bool has_part() const { return kind_ == Kind::kReasoning || kind_ == Kind::kMessage; }

  const ChatReply& reply_;
  const CallerTools& tools_;
  const Emit emit_;
  Json items_ = Json::array();
  bool has_answer_ = false;  // a message or a call
  size_t num_calls_ = 0;

  // The item that grows now.
  Kind kind_ = Kind::kNone;
  std::string id_, text_, call_id_;
  CallerTool tool_;
  CustomInput custom_input_;
  Json logprobs_ = Json::array();
};

}  // namespace invar::server
