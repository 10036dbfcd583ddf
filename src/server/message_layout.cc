#include "server/message_layout.h"

#include <string>
#include <utility>

#include "server/chat_body.h"

namespace invar::server {
namespace {

constexpr const char* kBlankLine = "\n\n";

bool has_role(const Json& message, const char* role) {
  return message.find("role")->as_string() == role;
}

bool is_system(const Json& message) {
  return has_role(message, "system") || has_role(message, "developer");
}

std::string text_of(const Json& message) {
  const Json* content = message.find("content");
  if (content == nullptr || content->is_null()) return {};
  if (content->is_string()) return content->as_string();
  std::string text;
  for (const Json& part : content->items()) {
    const Json* piece = part.find("text");
    if (piece == nullptr) piece = part.find("refusal");
    if (piece != nullptr && piece->is_string()) text += piece->as_string();
  }
  return text;
}

void append(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += kBlankLine;
  text += more;
}

bool can_join(const Json& a, const Json& b) {
  if (a.find("role")->as_string() != b.find("role")->as_string()) return false;
  return !has_role(a, "tool") && !has_tool_calls(a) && !has_tool_calls(b);
}

Json join_neighbours(const Json& messages) {
  const std::vector<Json>& items = messages.items();
  Json joined = Json::array();
  for (size_t i = 0, end = 0; i < items.size(); i = end) {
    for (end = i + 1; end < items.size() && can_join(items[i], items[end]);) ++end;
    Json message = items[i];
    if (end > i + 1) {
      std::string text;
      for (size_t k = i; k < end; ++k) append(text, text_of(items[k]));
      message.set("content", std::move(text));
    }
    joined.push_back(std::move(message));
  }
  return joined;
}

// What templates may rely on: null means absent, and contents made of parts are their text,
// whatever the parts are called.
Json plain_message(const Json& message) {
  Json plain = Json::object();
  for (const auto& [name, value] : message.members())
    if (!value.is_null() || name == "content")
      plain.set(name, name == "content" && value.is_array() ? Json(text_of(message)) : value);
  return plain;
}

}  // namespace

bool has_tool_calls(const Json& message) {
  const Json* calls = message.find("tool_calls");
  return calls != nullptr && !calls->is_null();
}

Json lay_out_messages(const Json& messages, const ChatModel& model,
                      std::vector<Warning>& warnings) {
  const std::vector<Json>& items = messages.items();
  size_t num_leading = 0;
  std::string system;
  for (; num_leading < items.size() && is_system(items[num_leading]); ++num_leading)
    append(system, text_of(items[num_leading]));
  bool has_system = num_leading > 0, has_answer = false, moved = false;

  Json rest = Json::array();
  for (size_t i = num_leading; i < items.size(); ++i) {
    has_answer |= has_role(items[i], "assistant");
    if (!is_system(items[i]) || model.system_anywhere) {
      rest.push_back(plain_message(items[i]));
    } else if (has_answer) {
      // Before it stands what was computed already: only what follows may change.
      rest.push_back(chat_message("user", "[system] " + text_of(items[i])));
      moved = true;
    } else {
      append(system, text_of(items[i]));
      has_system = moved = true;
    }
  }
  if (moved)
    warn(warnings, {"system_moved", "messages",
                    "this model's template shows system messages only at the start"});
  Json laid_out = Json::array();
  if (has_system) laid_out.push_back(chat_message("system", std::move(system)));
  for (Json& message : rest.items()) laid_out.push_back(std::move(message));
  return model.same_role_twice ? laid_out : join_neighbours(laid_out);
}

}  // namespace invar::server
