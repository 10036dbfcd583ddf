#include "server/response_output.h"

#include <utility>

#include "server/http/request_id.h"
#include "server/logprobs.h"

namespace invar::server {

bool ResponseOutput::emit(std::string_view type, Json fields) {
  return !emit_ || emit_(type, std::move(fields));
}

bool ResponseOutput::add(const ChatReply::Part& part) {
  switch (part.kind) {
    case ReplyPart::Kind::kReasoning:
      return open(Kind::kReasoning) && write_delta(part.text, {});
    case ReplyPart::Kind::kContent:
      return open(Kind::kMessage) && write_delta(part.text, part.logprobs);
    case ReplyPart::Kind::kCallBegin:
      return open_call(part.text);
    case ReplyPart::Kind::kArguments: {
      const std::string text = kind_ == Kind::kCustom ? custom_input_.push(part.text) : part.text;
      return text.empty() || write_delta(text, {});
    }
  }
  return true;
}

// Goes on with the item of that kind, or begins one.
bool ResponseOutput::open(Kind kind) {
  if (kind_ == kind) return true;
  if (!close("completed")) return false;
  kind_ = kind;
  has_answer_ |= kind != Kind::kReasoning;
  id_ = new_id(kind == Kind::kReasoning ? "rs_" : "msg_");
  Json added = Json::object();
  added.set("output_index", static_cast<int64_t>(items_.items().size()));
  added.set("item", item("in_progress"));
  if (!emit("response.output_item.added", std::move(added))) return false;
  Json begun = place(true);
  begun.set("part", part(true));
  return emit("response.content_part.added", std::move(begun));
}

bool ResponseOutput::open_call(const std::string& rendered_name) {
  if (!close("completed")) return false;
  const auto found = tools_.find(rendered_name);
  tool_ = found != tools_.end() ? found->second : CallerTool{rendered_name, "", false};
  kind_ = tool_.is_custom ? Kind::kCustom : Kind::kFunction;
  has_answer_ = true;
  id_ = new_id(tool_.is_custom ? "ctc_" : "fc_");
  call_id_ = reply_.choice(0).calls[num_calls_++].id;
  custom_input_ = {};
  Json added = Json::object();
  added.set("output_index", static_cast<int64_t>(items_.items().size()));
  added.set("item", item("in_progress"));
  return emit("response.output_item.added", std::move(added));
}

bool ResponseOutput::write_delta(const std::string& text, const std::vector<TokenEntry>& logprobs) {
  text_ += text;
  Json delta = place(has_part());
  delta.set("delta", text);
  switch (kind_) {
    case Kind::kNone:
      return true;
    case Kind::kReasoning:
      return emit("response.reasoning_text.delta", std::move(delta));
    case Kind::kMessage: {
      Json entries = Json::array();
      for (const TokenEntry& entry : logprobs)
        entries.push_back(chat_logprob_json(reply_.engine(), entry));
      for (const Json& entry : entries.items()) logprobs_.push_back(entry);
      delta.set("logprobs", std::move(entries));
      return emit("response.output_text.delta", std::move(delta));
    }
    case Kind::kFunction:
      return emit("response.function_call_arguments.delta", std::move(delta));
    case Kind::kCustom:
      return emit("response.custom_tool_call_input.delta", std::move(delta));
  }
  return true;
}

bool ResponseOutput::close(const char* status) {
  if (kind_ == Kind::kNone) return true;
  if (kind_ == Kind::kCustom)
    if (const std::string rest = custom_input_.finish(); !rest.empty() && !write_delta(rest, {}))
      return false;
  Json done = place(has_part());
  switch (kind_) {
    case Kind::kNone:
      break;
    case Kind::kReasoning:
      done.set("text", text_);
      if (!emit("response.reasoning_text.done", std::move(done))) return false;
      break;
    case Kind::kMessage:
      done.set("text", text_);
      done.set("logprobs", logprobs_);
      if (!emit("response.output_text.done", std::move(done))) return false;
      break;
    case Kind::kFunction:
      done.set("name", tool_.name);
      done.set("arguments", text_);
      if (!emit("response.function_call_arguments.done", std::move(done))) return false;
      break;
    case Kind::kCustom:
      done.set("input", text_);
      if (!emit("response.custom_tool_call_input.done", std::move(done))) return false;
  }
  if (has_part()) {
    Json ended = place(true);
    ended.set("part", part(false));
    if (!emit("response.content_part.done", std::move(ended))) return false;
  }
  Json last = Json::object();
  last.set("output_index", static_cast<int64_t>(items_.items().size()));
  last.set("item", item(status));
  items_.push_back(item(status));
  kind_ = Kind::kNone;
  text_.clear();
  logprobs_ = Json::array();
  return emit("response.output_item.done", std::move(last));
}

bool ResponseOutput::finish(bool is_cut) {
  const char* status = is_cut ? "incomplete" : "completed";
  if (!close(status)) return false;
  // Clients look for a message where nothing else answers.
  return has_answer_ || (open(Kind::kMessage) && close(status));
}

Json ResponseOutput::place(bool has_content) const {
  Json fields = Json::object();
  fields.set("item_id", id_);
  fields.set("output_index", static_cast<int64_t>(items_.items().size()));
  if (has_content) fields.set("content_index", 0);
  return fields;
}

Json ResponseOutput::part(bool is_begin) const {
  Json json = Json::object();
  json.set("type", kind_ == Kind::kReasoning ? "reasoning_text" : "output_text");
  json.set("text", is_begin ? std::string() : text_);
  if (kind_ == Kind::kMessage) {
    json.set("annotations", Json::array());
    json.set("logprobs", is_begin ? Json::array() : logprobs_);
  }
  return json;
}

Json ResponseOutput::item(const char* status) const {
  const bool is_begin = std::string_view(status) == "in_progress";
  Json content = Json::array();
  if (!is_begin && has_part()) content.push_back(part(false));
  Json json = Json::object();
  json.set("id", id_);
  switch (kind_) {
    case Kind::kNone:
      break;
    case Kind::kReasoning:
      json.set("type", "reasoning");
      json.set("status", status);
      json.set("summary", Json::array());
      json.set("content", std::move(content));
      json.set("encrypted_content", Json());
      break;
    case Kind::kMessage:
      json.set("type", "message");
      json.set("status", status);
      json.set("role", "assistant");
      json.set("content", std::move(content));
      break;
    case Kind::kFunction:
    case Kind::kCustom: {
      const bool is_custom = kind_ == Kind::kCustom;
      json.set("type", is_custom ? "custom_tool_call" : "function_call");
      json.set("status", status);
      json.set("call_id", call_id_);
      json.set("name", tool_.name);
      json.set(is_custom ? "input" : "arguments", text_);
      if (!tool_.name_space.empty()) json.set("namespace", tool_.name_space);
    }
  }
  return json;
}

}  // namespace invar::server
