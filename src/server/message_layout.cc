#include "server/message_layout.h"

#include <string>
#include <utility>

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

Json plain_message(const char* role, std::string content) {
  Json message = Json::object();
  message.set("role", role);
  message.set("content", std::move(content));
  return message;
}

void append(std::string& text, const std::string& more) {
  if (!text.empty() && !more.empty()) text += kBlankLine;
  text += more;
}

bool can_join(const Json& a, const Json& b) {
  if (a.find("role")->as_string() != b.find("role")->as_string()) return false;
  return !has_role(a, "tool") && a.find("tool_calls") == nullptr && b.find("tool_calls") == nullptr;
}

Json join_neighbours(const Json& messages) {
  Json joined = Json::array();
  for (const Json& message : messages.items()) {
    if (joined.items().empty() || !can_join(std::as_const(joined).items().back(), message)) {
      joined.push_back(message);
      continue;
    }
    Json& last = joined.items().back();
    std::string text = text_of(last);
    append(text, text_of(message));
    last.set("content", std::move(text));
  }
  return joined;
}

}  // namespace

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
      rest.push_back(items[i]);
    } else if (has_answer) {
      // Before it stands what was computed already: only what follows may change.
      rest.push_back(plain_message("user", "[system] " + text_of(items[i])));
      moved = true;
    } else {
      append(system, text_of(items[i]));
      has_system = moved = true;
    }
  }
  if (moved)
    warnings.push_back({"system_moved", "messages",
                        "this model's template shows system messages only at the start"});
  Json laid_out = Json::array();
  if (has_system) laid_out.push_back(plain_message("system", std::move(system)));
  for (Json& message : rest.items()) laid_out.push_back(std::move(message));
  return model.same_role_twice ? laid_out : join_neighbours(laid_out);
}

}  // namespace invar::server
