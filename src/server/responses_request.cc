#include "server/responses_request.h"

#include "server/responses_items.h"

namespace invar::server {
namespace {

constexpr size_t kMaxMetadata = 16;

// Everything that is not handed on to the chat reader as it is.
constexpr std::string_view kHandled[] = {"input",
                                         "instructions",
                                         "max_output_tokens",
                                         "tools",
                                         "tool_choice",
                                         "text",
                                         "reasoning",
                                         "include",
                                         "top_logprobs",
                                         "store",
                                         "metadata",
                                         "user",
                                         "safety_identifier",
                                         "prompt_cache_key",
                                         "service_tier",
                                         "truncation",
                                         "previous_response_id",
                                         "conversation",
                                         "background",
                                         "prompt",
                                         "context_management",
                                         "moderation",
                                         "max_tool_calls",
                                         "stream_options",
                                         "messages",
                                         "response_format",
                                         "logprobs",

                                         "return_token_ids",
                                         "metadata"};

Json echo(Fields& fields, std::string_view name) {
  const std::optional<std::string> value = fields.text(name);
  return value ? Json(*value) : Json();
}

// Names of the chat route whose silent loss would change the answer.
void refuse_chat_names(Fields& fields) {
  const std::pair<const char*, const char*> kNames[] = {
      {"messages", "input"},
      {"response_format", "text.format"},
      {"logprobs", "include: [\"message.output_text.logprobs\"]"}};
  for (const auto& [name, instead] : kNames) {
    const Json* value = fields.find(name);
    if (value == nullptr || (value->is_bool() && !value->as_bool())) continue;
    fields.fail("unsupported_parameter", name,
                std::string("is not a field of this route; send ") + instead);
  }
}

void refuse_what_is_not_here(Fields& fields) {
  for (const char* name : {"previous_response_id", "conversation"})
    if (fields.find(name) != nullptr)
      fields.fail("unsupported_parameter", name,
                  "is not supported: nothing is stored here; send the whole conversation as input");
  for (const char* name : {"prompt", "context_management", "moderation"})
    if (fields.find(name) != nullptr)
      fields.fail("unsupported_parameter", name, "is not supported by this server; leave it out");
  if (fields.boolean("background", false))
    fields.fail("unsupported_parameter", "background", "true is not supported by this server");
}

// Members that have no effect here.
void ignore_rest(Fields& inner, Fields& fields, bool strict, std::vector<Warning>& warnings) {
  inner.finish(strict, warnings);
  if (inner.error()) fields.fail(*inner.error());
}

// {"type", "name"?, "schema"?, "strict"?, "description"?}, flat.
void read_format(Fields& text, ResponsesRequest& out) {
  const Json* format = text.object("format");
  if (format == nullptr) return;
  out.text_format = *format;
  ChatBody& chat = out.chat;
  chat.rename("response_format", "text.format");
  chat.rename("response_format.json_schema", "text.format");
  const Json* type = format->find("type");
  if (type == nullptr || !type->is_string() || type->as_string() != "json_schema")
    return chat.set("response_format", *format, "text.format");
  Json inner = Json::object();
  for (const auto& [name, value] : format->members())
    if (name != "type") inner.set(name, value);
  Json json = Json::object();
  json.set("type", "json_schema");
  json.set("json_schema", std::move(inner));
  chat.set("response_format", std::move(json), "text.format");
}

void read_text(Fields& fields, bool strict, ResponsesRequest& out) {
  const Json* object = fields.object("text");
  if (object == nullptr) return;
  Fields text(*object, "text.");
  read_format(text, out);
  if (const auto verbosity = text.text("verbosity")) {
    out.verbosity = *verbosity;
    out.chat.set_template_variable("verbosity", *verbosity);
  }
  ignore_rest(text, fields, strict, out.warnings);
}

void read_reasoning(Fields& fields, bool strict, ResponsesRequest& out) {
  const Json* object = fields.object("reasoning");
  if (object == nullptr) return;
  Fields reasoning(*object, "reasoning.");
  if (const Json* effort = reasoning.find("effort")) {
    out.effort = *effort;
    out.chat.set("reasoning_effort", *effort, "reasoning.effort");
  }
  out.summary = echo(reasoning, "summary");
  reasoning.ignore({"generate_summary", "context", "mode"});
  ignore_rest(reasoning, fields, strict, out.warnings);
}

void read_logprobs(Fields& fields, bool strict, ResponsesRequest& out) {
  bool wanted = false;
  if (const Json* include = fields.array("include")) {
    for (size_t i = 0; i < include->items().size(); ++i) {
      const Json& entry = include->items()[i];
      const std::string path = format("include[%zu]", i);
      if (!entry.is_string())
        return fields.fail(api_error("invalid_type", path + " must be a string", path));
      if (entry.as_string() == "message.output_text.logprobs")
        wanted = true;
      else if (entry.as_string() == "reasoning.encrypted_content")
        continue;  // reasoning travels readable (specs/api.md 9.6)
      else if (strict)
        fields.fail(api_error("unknown_field",
                              path + " is not known: " + quote_value(entry.as_string()), path));
      else
        warn(out.warnings, {"ignored_field", path, quote_value(entry.as_string()) + " is ignored"});
    }
  }
  const bool has_top = fields.find("top_logprobs") != nullptr;
  out.top_logprobs = static_cast<int>(fields.integer("top_logprobs", 0, 20, 0));
  if (wanted) out.chat.set("logprobs", true, "include");
  if (wanted) out.chat.set("top_logprobs", out.top_logprobs, "top_logprobs");
  if (has_top && !wanted && out.top_logprobs > 0)
    fields.fail("invalid_value", "top_logprobs",
                "needs include: [\"message.output_text.logprobs\"]");
}

void read_metadata(Fields& fields, ResponsesRequest& out) {
  out.metadata = Json::object();
  const Json* metadata = fields.object("metadata");
  if (metadata == nullptr) return;
  if (metadata->members().size() > kMaxMetadata)
    fields.fail(
        "out_of_range", "metadata",
        format("may have at most %zu keys, got %zu", kMaxMetadata, metadata->members().size()));
  for (const auto& [key, value] : metadata->members())
    if (!value.is_string()) fields.fail("invalid_type", "metadata." + key, "must be a string");
  out.metadata = *metadata;
}

void read_storage(Fields& fields, ResponsesRequest& out) {
  if (fields.boolean("store", false))
    warn(out.warnings, {"ignored_field", "store", "nothing is stored; taken as false"});
  const std::string truncation = fields.text("truncation", "disabled");
  if (truncation == "auto")
    warn(out.warnings, {"ignored_field", "truncation", "nothing is ever cut; taken as disabled"});
  else if (truncation != "disabled")
    fields.fail("invalid_value", "truncation",
                "must be auto or disabled, got " + quote_value(truncation));
}

}  // namespace

std::optional<ApiError> read_responses_body(const Json& body, const ApiOptions& options,
                                            ResponsesRequest& out) {
  const bool strict = options.strict_fields;
  Fields fields(body);
  refuse_chat_names(fields);
  copy_other_fields(body, kHandled, out.chat);
  if (const auto instructions = fields.text("instructions")) {
    out.instructions = *instructions;
    if (!instructions->empty())
      out.chat.add_message(chat_message("system", *instructions), "instructions");
  }
  read_responses_input(fields, out.chat, out.warnings);
  if (fields.find("max_output_tokens") != nullptr) {
    out.max_output_tokens = fields.integer("max_output_tokens", 1, int64_t{1} << 40, 1);
    out.chat.set("max_completion_tokens", out.max_output_tokens, "max_output_tokens");
    out.chat.rename("max_tokens", "max_output_tokens");
  }
  out.tools = read_responses_tools(fields, strict, out.chat, out.warnings);
  out.parallel_tool_calls = fields.boolean("parallel_tool_calls", true);
  read_text(fields, strict, out);
  read_reasoning(fields, strict, out);
  read_logprobs(fields, strict, out);
  read_storage(fields, out);
  read_metadata(fields, out);
  out.user = echo(fields, "user");
  out.safety_identifier = echo(fields, "safety_identifier");
  out.prompt_cache_key = echo(fields, "prompt_cache_key");
  refuse_what_is_not_here(fields);
  refuse_what_only_chat_shows(fields);
  report_unknown(fields, body, {"return_token_ids"}, strict, out.warnings);
  return fields.error();
}

}  // namespace invar::server
