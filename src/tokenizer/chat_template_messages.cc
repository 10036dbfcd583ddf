// prepare_messages: what clients send in OpenAI's form -> what templates expect.
#include "tokenizer/chat_template.h"

namespace invar {
namespace {

// Parts in a list become one text; a part that is no text cannot be shown to a text model.
Result<Json> join_parts(const Json& parts, const std::string& where) {
  std::string text;
  for (size_t i = 0; i < parts.items().size(); ++i) {
    const Json& part = parts.items()[i];
    const std::string name = where + "[" + std::to_string(i) + "]";
    if (part.is_string()) {
      text += part.as_string();
      continue;
    }
    if (!part.is_object())
      return invalid_argument("%s is %s, expected an object with 'type'", name.c_str(),
                              part.kind_name());
    const Json* type = part.find("type");
    if (type != nullptr && (!type->is_string() || type->as_string() != "text"))
      return unsupported("%s: content parts of type '%s' are not supported, only 'text'",
                         name.c_str(),
                         type->is_string() ? type->as_string().substr(0, 40).c_str() : "?");
    const Json* value = part.find("text");
    if (value == nullptr || !value->is_string())
      return invalid_argument("%s.text must be a string", name.c_str());
    text += value->as_string();
  }
  return Json(std::move(text));
}

// The arguments as an object. Text that is no JSON stays text, for templates that print it.
Result<Json> parse_arguments(const Json& arguments, const std::string& where) {
  if (arguments.is_null()) return Json::object();
  if (!arguments.is_string()) {
    if (arguments.is_object()) return arguments;
    return invalid_argument("%s.arguments is %s, expected a string or an object", where.c_str(),
                            arguments.kind_name());
  }
  const std::string& text = arguments.as_string();
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return Json::object();
  Result<Json> parsed = Json::parse(text);
  if (!parsed) return arguments;
  if (!parsed->is_object()) return arguments;
  return parsed;
}

Result<Json> prepare_tool_calls(const Json& calls, const std::string& where) {
  if (!calls.is_array())
    return invalid_argument("%s is %s, expected an array", where.c_str(), calls.kind_name());
  Json result = Json::array();
  for (size_t i = 0; i < calls.items().size(); ++i) {
    Json call = calls.items()[i];
    const std::string name = where + "[" + std::to_string(i) + "]";
    if (!call.is_object())
      return invalid_argument("%s is %s, expected an object", name.c_str(), call.kind_name());
    // Some clients leave the "function" level out.
    const Json* function = call.find("function");
    Json target = function != nullptr ? *function : call;
    if (!target.is_object())
      return invalid_argument("%s.function is %s, expected an object", name.c_str(),
                              target.kind_name());
    const Json* called = target.find("name");
    if (called == nullptr || !called->is_string())
      return invalid_argument("%s.function.name must be a string", name.c_str());
    const Json* arguments = target.find("arguments");
    INVAR_TRY(Json parsed,
              parse_arguments(arguments == nullptr ? Json() : *arguments, name + ".function"));
    target.set("arguments", std::move(parsed));
    if (function != nullptr) {
      call.set("function", std::move(target));
    } else {
      call = std::move(target);
    }
    result.push_back(std::move(call));
  }
  return result;
}

Result<Json> prepare_message(const Json& given, const std::string& where) {
  if (!given.is_object())
    return invalid_argument("%s is %s, expected an object", where.c_str(), given.kind_name());
  Json message = given;
  const Json* role = message.find("role");
  if (role == nullptr || !role->is_string())
    return invalid_argument("%s.role must be a string", where.c_str());
  if (role->as_string() == "developer") message.set("role", "system");

  const Json* content = message.find("content");
  if (content == nullptr || content->is_null()) {
    message.set("content", "");
  } else if (content->is_array()) {
    INVAR_TRY(Json text, join_parts(*content, where + ".content"));
    message.set("content", std::move(text));
  } else if (!content->is_string()) {
    return invalid_argument("%s.content is %s, expected a string, null or an array", where.c_str(),
                            content->kind_name());
  }

  for (const char* key : {"reasoning_content", "thinking", "reasoning"}) {
    const Json* reasoning = message.find(key);
    if (reasoning == nullptr || reasoning->is_null()) continue;
    if (!reasoning->is_string())
      return invalid_argument("%s.%s is %s, expected a string", where.c_str(), key,
                              reasoning->kind_name());
    message.set("reasoning_content", Json(*reasoning));
    break;
  }

  if (const Json* calls = message.find("tool_calls"); calls != nullptr && !calls->is_null()) {
    INVAR_TRY(Json prepared, prepare_tool_calls(*calls, where + ".tool_calls"));
    message.set("tool_calls", std::move(prepared));
  }
  return message;
}

}  // namespace

Result<void> prepare_messages(Json& messages) {
  if (!messages.is_array())
    return invalid_argument("messages is %s, expected an array", messages.kind_name());
  Json prepared = Json::array();
  for (size_t i = 0; i < messages.items().size(); ++i) {
    INVAR_TRY(Json message, prepare_message(std::as_const(messages).items()[i],
                                            "messages[" + std::to_string(i) + "]"));
    prepared.push_back(std::move(message));
  }
  messages = std::move(prepared);
  return {};
}

}  // namespace invar
