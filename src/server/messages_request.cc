#include "server/messages_request.h"

#include <algorithm>

#include "server/messages_blocks.h"

namespace invar::server {
namespace {

// Everything that is not handed on to the chat reader as it is.
constexpr std::string_view kHandled[] = {"max_tokens",
                                         "messages",
                                         "system",
                                         "stop_sequences",
                                         "tools",
                                         "tool_choice",
                                         "thinking",
                                         "output_config",
                                         "metadata",
                                         "service_tier",
                                         "inference_geo",
                                         "cache_control",
                                         "context_management",
                                         "container",
                                         "mcp_servers",
                                         "response_format",

                                         "logprobs",
                                         "top_logprobs",
                                         "return_token_ids",
                                         "max_completion_tokens",
                                         "n_predict",
                                         "stream_options"};
// All that count_tokens hands on.
constexpr std::string_view kPromptFields[] = {"model", "chat_template_kwargs", "reasoning_effort",
                                              "add_generation_prompt", "continue_final_message"};

const std::string* text_of(const Json& object, std::string_view name) {
  const Json* value = object.find(name);
  return value != nullptr && value->is_string() ? &value->as_string() : nullptr;
}

void read_limit(Fields& fields, MessagesRequest& out) {
  if (fields.find("max_tokens") == nullptr)
    return fields.fail("missing_field", "max_tokens", "field required");
  const int64_t limit = fields.integer("max_tokens", 0, int64_t{1} << 40, 1);
  out.only_prompt = limit == 0;  // which chat has no word for
  if (limit > 0) out.chat.set("max_completion_tokens", limit, "max_tokens");
}

void read_stops(Fields& fields, ChatBody& chat) {
  const Json* stops = fields.array("stop_sequences");
  if (stops == nullptr) return;
  if (fields.find("stop") != nullptr)
    return fields.fail("invalid_value", "stop_sequences", "and stop cannot both be given");
  chat.set("stop", *stops, "stop_sequences");
}

void read_tools(Fields& fields, ChatBody& chat, std::vector<Warning>& warnings) {
  const Json* tools = fields.array("tools");
  if (tools == nullptr) return;
  for (size_t i = 0; i < tools->items().size(); ++i) {
    const Json& tool = tools->items()[i];
    const std::string path = format("tools[%zu]", i);
    if (!tool.is_object())
      return fields.fail(api_error("invalid_type", path + " must be an object", path));
    if (const std::string* type = text_of(tool, "type"); type != nullptr && *type != "custom") {
      warn(warnings, {"tool_dropped", path, quote_value(*type) + " is not available here"});
      continue;
    }
    if (tool.find("name") == nullptr)
      return fields.fail(api_error("missing_field", path + ".name field required", path + ".name"));
    const Json* schema = tool.find("input_schema");
    if (schema == nullptr || schema->is_null())
      return fields.fail(api_error("missing_field", path + ".input_schema field required",
                                   path + ".input_schema"));
    Json function = Json::object();
    function.set("name", *tool.find("name"));
    if (const std::string* text = text_of(tool, "description")) function.set("description", *text);
    function.set("parameters", *schema);
    const Json* strict = tool.find("strict");
    if (strict != nullptr && strict->is_bool() && strict->as_bool()) function.set("strict", true);
    chat.add_tool(std::move(function), path, "input_schema");
  }
}

// {"type": "auto" | "any" | "tool" | "none"}
void read_tool_choice(Fields& fields, ChatBody& chat) {
  constexpr const char* kName = "tool_choice";
  const Json* choice = fields.object(kName);
  if (choice == nullptr) return;
  Fields inner(*choice, "tool_choice.");
  const std::string type = inner.text("type", "");
  chat.rename("tool_choice.function", kName);
  if (type == "auto" || type == "none") {
    chat.set(kName, type, kName);
  } else if (type == "any") {
    chat.set(kName, "required", kName);
  } else if (type == "tool") {
    Json function = Json::object();
    if (const auto name = inner.text("name"))
      function.set("name", *name);
    else
      inner.fail("missing_field", "name", "field required");
    Json json = Json::object();
    json.set("type", "function");
    json.set("function", std::move(function));
    chat.set(kName, std::move(json), kName);
  } else {
    inner.fail("invalid_value", "type",
               "must be auto, any, tool or none, got " + quote_value(type));
  }
  if (inner.boolean("disable_parallel_tool_use", false))
    chat.set("parallel_tool_calls", false, "tool_choice.disable_parallel_tool_use");
  if (inner.error()) fields.fail(*inner.error());
}

// `is_continued`: the reply goes on with a message that was begun, so there is no thinking.
void read_thinking(Fields& fields, bool is_continued, MessagesRequest& out) {
  const Json* object = fields.object("thinking");
  if (object == nullptr) return;
  Fields thinking(*object, "thinking.");
  const std::string type = thinking.text("type", "");
  if (type == "enabled") {
    if (thinking.find("budget_tokens") == nullptr)
      thinking.fail("missing_field", "budget_tokens", "field required");
    const int64_t budget = thinking.integer("budget_tokens", 1, int64_t{1} << 40, 1);
    out.chat.set("thinking_budget", budget, "thinking.budget_tokens");
    if (!is_continued) out.chat.set_template_variable("enable_thinking", true);
  } else if (type == "disabled") {
    out.chat.set_template_variable("enable_thinking", false);
  } else if (type != "adaptive") {
    thinking.fail("invalid_value", "type",
                  "must be enabled, adaptive or disabled, got " + quote_value(type));
  }
  const std::string display = thinking.text("display", "summarized");
  if (display != "summarized" && display != "omitted")
    thinking.fail("invalid_value", "display",
                  "must be summarized or omitted, got " + quote_value(display));
  out.hides_thinking = display == "omitted";
  if (thinking.error()) fields.fail(*thinking.error());
}

void read_output_config(Fields& fields, bool strict, MessagesRequest& out) {
  const Json* object = fields.object("output_config");
  if (object == nullptr) return;
  Fields config(*object, "output_config.");
  if (const Json* effort = config.find("effort"))
    out.chat.set("reasoning_effort", *effort, "output_config.effort");
  if (const Json* format = config.object("format")) {
    const std::string* type = text_of(*format, "type");
    const Json* schema = format->find("schema");
    if (type == nullptr || *type != "json_schema")
      config.fail("invalid_value", "format.type", "must be json_schema");
    else if (schema == nullptr || schema->is_null())
      config.fail("missing_field", "format.schema", "field required");
    else {
      Json inner = Json::object();
      inner.set("schema", *schema);
      Json json = Json::object();
      json.set("type", "json_schema");
      json.set("json_schema", std::move(inner));
      out.chat.set("response_format", std::move(json), "output_config.format");
      out.chat.rename("response_format.json_schema", "output_config.format");
    }
  }
  config.finish(strict, out.warnings);
  if (config.error()) fields.fail(*config.error());
}

// Fields without effect, and those that would change the answer if they had none.
void read_rest(Fields& fields, const Json& body, bool strict, MessagesRequest& out) {
  if (fields.find("context_management") != nullptr)
    warn(out.warnings, {"ignored_field", "context_management", "no context is edited here"});
  for (const char* name : {"container", "mcp_servers"}) fields.not_built(name);
  if (fields.find("response_format") != nullptr)
    fields.fail("unsupported_parameter", "response_format",
                "is not a field of this route; send output_config.format");
  refuse_what_only_chat_shows(fields);
  report_unknown(fields, body,
                 {"logprobs", "top_logprobs", "return_token_ids", "max_completion_tokens",
                  "n_predict", "stream_options"},
                 strict, out.warnings);
}

}  // namespace

std::optional<ApiError> read_messages_body(const Json& body, const ApiOptions& options,
                                           bool for_generation, MessagesRequest& out) {
  const bool strict = options.strict_fields;
  Fields fields(body);
  ChatBody& chat = out.chat;
  if (for_generation) {
    copy_other_fields(body, kHandled, chat);
    read_limit(fields, out);
  } else {
    for (const std::string_view name : kPromptFields)
      if (const Json* value = body.find(name)) chat.set(name, *value, std::string(name));
  }
  const bool is_continued = read_messages(fields, options.keep_attribution, chat, out.warnings);
  if (is_continued) chat.set("continue_final_message", true, "messages");
  if (for_generation) read_stops(fields, chat);
  read_tools(fields, chat, out.warnings);
  read_tool_choice(fields, chat);
  read_thinking(fields, is_continued, out);
  read_output_config(fields, strict, out);
  read_rest(fields, body, strict, out);
  if (fields.error()) return in_messages_words(*fields.error());
  return std::nullopt;
}

ApiError in_messages_words(ApiError error) {
  if (error.code == "context_length_exceeded" && error.num_prompt_tokens && error.context)
    error.message = "prompt is too long: " + std::to_string(*error.num_prompt_tokens) +
                    " tokens > " + std::to_string(*error.context) + " maximum";
  else if (!error.param.empty() && error.message.starts_with(error.param + " "))
    error.message.insert(error.param.size(), ":");
  return error;
}

}  // namespace invar::server
