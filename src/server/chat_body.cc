#include "server/chat_body.h"

namespace invar::server {
namespace {

// Whether `path` is `prefix` or lies below it: "tools[1].name" below "tools[1]", not "tools[10]".
bool is_below(std::string_view path, std::string_view prefix) {
  if (!path.starts_with(prefix)) return false;
  return path.size() == prefix.size() ||
         std::string_view(".[#").find(path[prefix.size()]) != std::string_view::npos;
}

}  // namespace

void AssistantTurn::add_call(std::string id, std::string name, std::string arguments) {
  Json function = Json::object();
  function.set("name", std::move(name));
  function.set("arguments", std::move(arguments));
  Json call = Json::object();
  call.set("id", std::move(id));
  call.set("type", "function");
  call.set("function", std::move(function));
  calls.push_back(std::move(call));
}

Json AssistantTurn::take() {
  Json message = Json::object();
  message.set("role", "assistant");
  message.set("content", has_content || calls.empty() ? Json(std::move(content)) : Json());
  if (!reasoning.empty()) message.set("reasoning_content", std::move(reasoning));
  if (!calls.empty()) {
    Json list = Json::array();
    for (Json& call : calls) list.push_back(std::move(call));
    message.set("tool_calls", std::move(list));
  }
  *this = {};
  return message;
}

Json chat_message(std::string_view role, std::string text) {
  Json message = Json::object();
  message.set("role", role);
  message.set("content", std::move(text));
  return message;
}

void ChatBody::set(std::string_view name, Json value, std::string from) {
  body_.set(name, std::move(value));
  if (from != name) rename(std::string(name), std::move(from));
}

void ChatBody::set_template_variable(std::string_view name, Json value) {
  constexpr const char* kKwargs = "chat_template_kwargs";
  const Json* found = body_.find(kKwargs);
  // What is no object is the chat reader's to refuse.
  if (found != nullptr && !found->is_null() && !found->is_object()) return;
  Json kwargs = found != nullptr && found->is_object() ? *found : Json::object();
  if (kwargs.find(name) == nullptr) kwargs.set(name, std::move(value));
  body_.set(kKwargs, std::move(kwargs));
}

void ChatBody::add_message(Json message, std::string from) {
  rename(format("messages[%zu]", num_messages()), std::move(from));
  messages_.push_back(std::move(message));
}

void ChatBody::add_tool(Json function, const std::string& from, std::string_view schema_name) {
  const std::string path = format("tools[%zu]", num_tools());
  rename(path, from);
  rename(path + ".function", from);
  rename(path + ".function.parameters", from + "." + std::string(schema_name));
  Json tool = Json::object();
  tool.set("type", "function");
  tool.set("function", std::move(function));
  tools_.push_back(std::move(tool));
}

Json ChatBody::finish() {
  body_.set("messages", std::move(messages_));
  if (!tools_.items().empty()) body_.set("tools", std::move(tools_));
  return std::move(body_);
}

std::string ChatBody::caller_path(std::string_view path) const {
  const std::pair<std::string, std::string>* best = nullptr;
  for (const auto& rename : renames_)
    if (is_below(path, rename.first) &&
        (best == nullptr || rename.first.size() >= best->first.size()))
      best = &rename;
  if (best == nullptr) return std::string(path);
  return best->second + std::string(path.substr(best->first.size()));
}

ApiError ChatBody::in_callers_terms(ApiError error) const {
  std::string path = caller_path(error.param);
  error.message = in_callers_terms(std::move(error.message), error.param, path);
  error.param = std::move(path);
  // The one message that names a field in its midst.
  constexpr std::string_view kLimit = "and max_tokens asks";
  if (const size_t at = error.message.find(kLimit);
      error.code == "context_length_exceeded" && at != std::string::npos)
    error.message.replace(at, kLimit.size(), "and " + caller_path("max_tokens") + " asks");
  return error;
}

Warning ChatBody::in_callers_terms(Warning warning) const {
  std::string path = caller_path(warning.param);
  warning.message = in_callers_terms(std::move(warning.message), warning.param, path);
  warning.param = std::move(path);
  return warning;
}

void report_unknown(Fields& fields, const Json& body, std::initializer_list<std::string_view> names,
                    bool strict, std::vector<Warning>& warnings) {
  Json found = Json::object();
  for (const std::string_view name : names)
    if (const Json* value = body.find(name)) found.set(name, *value);
  Fields unknown(found);
  unknown.finish(strict, warnings);
  if (unknown.error()) fields.fail(*unknown.error());
}

void add_warnings(const ChatBody& chat, std::vector<Warning> mapping, std::vector<Warning>& all) {
  for (Warning& warning : all) warn(mapping, chat.in_callers_terms(std::move(warning)));
  all = std::move(mapping);
}

void refuse_what_only_chat_shows(Fields& fields) {
  for (const char* name : {"n", "n_cmpl"})
    if (fields.integer(name, 1, 16, 1) != 1)
      fields.fail("unsupported_parameter", name, "must be 1 on this route");
  fields.not_built("return_progress");
  const std::string form = fields.text("reasoning_format", "");
  if (form == "inline" || form == "deepseek-legacy")
    fields.fail("unsupported_parameter", "reasoning_format",
                "must be auto, deepseek or none on this route, got " + quote_value(form));
}

// Messages begin with the path that they speak of.
std::string ChatBody::in_callers_terms(std::string message, const std::string& path,
                                       const std::string& renamed) const {
  if (path == renamed || path.empty() || !message.starts_with(path)) return message;
  return renamed + message.substr(path.size());
}

}  // namespace invar::server
