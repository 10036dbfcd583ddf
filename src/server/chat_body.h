// ChatBody: a chat body made from a body of another API (Responses, Messages), which says the same
// in other words. It remembers where each part came from, so that what the chat reader
// (chat_request.h) finds wrong is told in the caller's own terms.
#pragma once

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/fields.h"

namespace invar::server {

// An assistant's turn, gathered from items or blocks that belong together.
struct AssistantTurn {
  std::string reasoning, content;
  bool has_content = false;  // "" may have been said
  std::vector<Json> calls;   // as chat has them

  bool empty() const { return reasoning.empty() && !has_content && calls.empty(); }
  void add_call(std::string id, std::string name, std::string arguments);
  // The turn as a chat message; nothing is left.
  Json take();
};

// {"role": role, "content": text}
Json chat_message(std::string_view role, std::string text);

// Parts that are no text where an agent's conversation must go on (results of tools) become this.
inline constexpr std::string_view kImageOmitted = "[image omitted: this model reads text only]";

class ChatBody {
 public:
  // `from` is the caller's name of the field.
  void set(std::string_view name, Json value, std::string from);
  // Template variables; those that are there already stay.
  void set_template_variable(std::string_view name, Json value);
  void add_message(Json message, std::string from);
  // {"name", "description"?, "parameters"?, "strict"?}. `schema_name` is the caller's word for
  // "parameters".
  void add_tool(Json function, const std::string& from, std::string_view schema_name);
  // Paths below `name` are the caller's paths below `from`.
  void rename(std::string name, std::string from) {
    renames_.emplace_back(std::move(name), std::move(from));
  }

  // The body; messages and tools are put in.
  Json finish();
  size_t num_messages() const { return messages_.items().size(); }
  size_t num_tools() const { return tools_.items().size(); }

  std::string caller_path(std::string_view path) const;
  ApiError in_callers_terms(ApiError error) const;
  Warning in_callers_terms(Warning warning) const;

 private:
  std::string in_callers_terms(std::string message, const std::string& path,
                               const std::string& renamed) const;

  Json body_ = Json::object();
  Json messages_ = Json::array();
  Json tools_ = Json::array();
  std::vector<std::pair<std::string, std::string>> renames_;
};

// Members of `body` that are not in `handled` mean on every route what they mean in a chat; they go
// over as they are, so that unknown ones are found by the chat reader.
template <typename Names>
void copy_other_fields(const Json& body, const Names& handled, ChatBody& chat) {
  for (const auto& [name, value] : body.members()) {
    bool is_handled = false;
    for (const std::string_view known : handled) is_handled = is_handled || known == name;
    if (!is_handled) chat.set(name, value, name);
  }
}

// `names` are fields of other routes: as good as unknown here.
void report_unknown(Fields& fields, const Json& body, std::initializer_list<std::string_view> names,
                    bool strict, std::vector<Warning>& warnings);

// Puts those of the mapping before those of the chat reader, all in the caller's terms.
void add_warnings(const ChatBody& chat, std::vector<Warning> mapping, std::vector<Warning>& all);

// Fields that go over to the chat, and whose effect the answers of other routes have no place for.
void refuse_what_only_chat_shows(Fields& fields);

}  // namespace invar::server
