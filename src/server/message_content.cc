#include "server/message_content.h"

#include <utility>

#include "server/partial_json.h"

namespace invar::server {

bool MessageContent::emit(std::string_view type, Json fields) {
  if (!emit_) return true;
  fields.set("index", static_cast<int64_t>(blocks_.items().size()));
  return emit_(type, std::move(fields));
}

bool MessageContent::add(const ChatReply::Part& part) {
  switch (part.kind) {
    case ReplyPart::Kind::kReasoning:
      if (!open(Kind::kThinking)) return false;
      return hides_thinking_ || write_delta("thinking_delta", "thinking", part.text);
    case ReplyPart::Kind::kContent:
      return open(Kind::kText) && write_delta("text_delta", "text", part.text);
    case ReplyPart::Kind::kCallBegin:
      return close(false) && open(Kind::kToolUse, part.text);
    case ReplyPart::Kind::kArguments:
      return write_delta("input_json_delta", "partial_json", part.text);
  }
  return true;
}

// Goes on with the block of that kind, or begins one.
bool MessageContent::open(Kind kind, const std::string& name) {
  if (kind_ == kind) return true;
  if (!close(false)) return false;
  kind_ = kind;
  if (kind == Kind::kToolUse) {
    name_ = name;
    id_ = reply_.choice(0).calls[num_calls_++].id;
  }
  Json fields = Json::object();
  fields.set("content_block", block(true));
  return emit("content_block_start", std::move(fields));
}

bool MessageContent::write_delta(const char* type, const char* key, const std::string& text) {
  text_ += text;
  Json delta = Json::object();
  delta.set("type", type);
  delta.set(key, text);
  Json fields = Json::object();
  fields.set("delta", std::move(delta));
  return emit("content_block_delta", std::move(fields));
}

bool MessageContent::close(bool is_cut) {
  if (kind_ == Kind::kNone) return true;
  if (kind_ == Kind::kToolUse && text_.empty() && !is_cut &&
      !write_delta("input_json_delta", "partial_json", "{}"))
    return false;
  if (kind_ == Kind::kThinking && !write_delta("signature_delta", "signature", "")) return false;
  if (!emit("content_block_stop", Json::object())) return false;
  blocks_.push_back(block(false));
  kind_ = Kind::kNone;
  text_.clear();
  return true;
}

bool MessageContent::finish(bool is_cut) { return close(is_cut); }

Json MessageContent::block(bool is_begin) const {
  Json json = Json::object();
  switch (kind_) {
    case Kind::kNone:
      break;
    case Kind::kThinking:
      json.set("type", "thinking");
      json.set("thinking", text_);
      json.set("signature", "");
      break;
    case Kind::kText:
      json.set("type", "text");
      json.set("text", text_);
      break;
    case Kind::kToolUse: {
      bool is_whole = true;
      json.set("type", "tool_use");
      json.set("id", id_);
      json.set("name", name_);
      // Input is an object, also when a limit cut the call.
      json.set("input", is_begin ? Json::object() : parse_partial_object(text_, is_whole));
    }
  }
  return json;
}

}  // namespace invar::server
