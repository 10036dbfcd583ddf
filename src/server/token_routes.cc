#include "server/token_routes.h"

#include "server/answer_parts.h"
#include "server/chat_request.h"
#include "server/engine_call.h"
#include "server/http/json_body.h"

namespace invar::server {
namespace {

using Answer = std::optional<ApiError> (*)(const EngineCall& call, const Json& body, Json& json);

// A piece is a string, or the values of its bytes where these are no UTF-8.
Json pieces_json(const Engine& engine, const std::vector<int32_t>& ids) {
  Json list = Json::array();
  for (const int32_t id : ids) {
    const std::string bytes = engine.token_bytes(id);
    const std::string text = engine.detokenize(std::span(&id, 1), true);
    Json entry = Json::object();
    entry.set("id", int64_t{id});
    if (bytes.empty() || bytes == text) {
      entry.set("piece", bytes.empty() ? text : bytes);
    } else {
      Json values = Json::array();
      for (const char c : bytes) values.push_back(static_cast<int>(static_cast<uint8_t>(c)));
      entry.set("piece", std::move(values));
    }
    list.push_back(std::move(entry));
  }
  return list;
}

std::optional<ApiError> tokenize(const EngineCall& call, const Json& body, Json& json) {
  Fields fields(body);
  const bool has_content = fields.find("content") != nullptr;
  const bool has_prompt = fields.find("prompt") != nullptr;
  const bool has_messages = fields.find("messages") != nullptr;
  if (int{has_content} + int{has_prompt} + int{has_messages} != 1)
    return api_error("missing_field", "exactly one of content, prompt and messages is wanted");
  std::vector<int32_t> ids;
  if (has_messages) {
    // Only these fields have to do with the prompt; the rest of a chat's body is not looked at.
    Json chat = Json::object();
    for (const char* name : {"messages", "tools", "tool_choice", "chat_template_kwargs",
                             "reasoning_effort", "add_generation_prompt", "continue_final_message"})
      if (const Json* value = body.find(name)) chat.set(name, *value);
    chat.set("model", call.options.model_names.front());
    ChatRequest request;
    if (auto error =
            read_chat_request(chat, call.engine, call.model, call.options, "", false, request))
      return error;
    ids = request.prompt_ids;
  } else {
    const bool add_special = has_content ? fields.boolean("add_special", false)
                                         : fields.boolean("add_special_tokens", true);
    const bool parse_special = has_prompt || fields.boolean("parse_special", true);
    const std::string text = fields.text(has_content ? "content" : "prompt", "");
    if (fields.error()) return fields.error();
    Result<std::vector<int32_t>> encoded = call.engine.tokenize(text, parse_special, add_special);
    if (!encoded) return engine_api_error(encoded.error());
    ids = *std::move(encoded);
  }
  const bool with_pieces = fields.boolean("with_pieces", false);
  const bool with_strings = fields.boolean("return_token_strs", false);
  if (fields.error()) return fields.error();
  Json strings;
  if (with_strings) {
    strings = Json::array();
    for (const int32_t id : ids) strings.push_back(call.engine.detokenize(std::span(&id, 1), true));
  }
  json.set("count", static_cast<int64_t>(ids.size()));
  json.set("max_model_len", call.engine.description().context);
  json.set("tokens", with_pieces ? pieces_json(call.engine, ids) : ids_json(ids));
  json.set("token_strs", std::move(strings));
  return std::nullopt;
}

std::optional<ApiError> detokenize(const EngineCall& call, const Json& body, Json& json) {
  Fields fields(body);
  const Json* tokens = fields.array("tokens");
  if (fields.error()) return fields.error();
  if (tokens == nullptr) return api_error("missing_field", "tokens field required", "tokens");
  std::vector<int32_t> ids;
  for (const Json& entry : tokens->items()) {
    const int64_t limit = call.engine.description().vocab_size;
    if (!entry.is_int() || entry.as_int() < 0 || entry.as_int() >= limit)
      return api_error("invalid_value",
                       "tokens must be integers from 0 to " + std::to_string(limit - 1), "tokens");
    ids.push_back(static_cast<int32_t>(entry.as_int()));
  }
  const std::string text = call.engine.detokenize(ids, true);
  json.set("content", text);
  json.set("prompt", text);
  return std::nullopt;
}

// A chat body of which only the prompt is wanted. Which model it is for may be left out: nobody is
// answered by a model that was not asked.
std::optional<ApiError> read_prompt(const EngineCall& call, Json body, ChatRequest& request,
                                    std::string* rendered = nullptr) {
  const Json* model = body.find("model");
  if (body.is_object() && (model == nullptr || model->is_null()))
    body.set("model", call.options.model_names.front());
  return read_chat_request(body, call.engine, call.model, call.options, "", false, request,
                           rendered);
}

std::optional<ApiError> apply_template(const EngineCall& call, const Json& body, Json& json) {
  ChatRequest request;
  std::string rendered;
  if (auto error = read_prompt(call, body, request, &rendered)) return error;
  json.set("prompt", std::move(rendered));
  if (request.generation.return_token_ids)
    json.set("prompt_token_ids", ids_json(request.prompt_ids));
  return std::nullopt;
}

std::optional<ApiError> input_tokens(const EngineCall& call, const Json& body, Json& json) {
  ChatRequest request;
  if (auto error = read_prompt(call, body, request)) return error;
  json = input_tokens_json(request.prompt_ids);
  return std::nullopt;
}

}  // namespace

void add_token_routes(Router& router, const ServedModel& served, const ApiOptions& options) {
  const auto add = [&](const char* path, Answer answer) {
    add_engine_route(router, path, false, served, options,
                     [answer](const EngineCall& call, std::shared_ptr<ResponseWriter> writer) {
                       Json body, json = Json::object();
                       if (const auto error = parse_json_body(call.http.body, body))
                         return writer->fail(*error);
                       if (const auto error = answer(call, body, json)) return writer->fail(*error);
                       writer->send(json_response(json.dump()));
                     });
  };
  for (const char* path : {"/tokenize", "/v1/tokenize"}) add(path, tokenize);
  for (const char* path : {"/detokenize", "/v1/detokenize"}) add(path, detokenize);
  for (const char* path : {"/apply-template", "/v1/apply-template"}) add(path, apply_template);
  add("/v1/chat/completions/input_tokens", input_tokens);
}

}  // namespace invar::server
