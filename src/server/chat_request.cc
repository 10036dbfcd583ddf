// (2) A chat body becomes a request: before it server/http (1), after it engine/engine.cc (3).
#include "server/chat_request.h"

#include <algorithm>
#include <cstdlib>

#include "server/answer_parts.h"
#include "server/message_layout.h"
#include "server/reasoning_filter.h"
#include "server/response_format.h"

namespace invar::server {
namespace {

constexpr size_t kMaxMessages = 10'000, kMaxKwargs = 64;

// Roles and content parts; what the template makes of them is the template's business.
void check_message(Fields& fields, const Json& message, size_t index) {
  const std::string path = format("messages[%zu]", index);
  if (!message.is_object())
    return fields.fail(api_error("invalid_type", path + " must be an object", path));
  const Json* role = message.find("role");
  if (role == nullptr || !role->is_string())
    return fields.fail(api_error("missing_field", path + ".role field required", path + ".role"));
  const std::string& name = role->as_string();
  if (name != "system" && name != "developer" && name != "user" && name != "assistant" &&
      name != "tool")
    return fields.fail(api_error(
        "invalid_value",
        path + ".role must be system, developer, user, assistant or tool, got " + quote_value(name),
        path + ".role"));
  const Json* content = message.find("content");
  const Json *reasoning = message.find("reasoning_content"), *other = message.find("reasoning");
  if (reasoning != nullptr && other != nullptr && reasoning->is_string() && other->is_string() &&
      reasoning->as_string() != other->as_string())
    return fields.fail(api_error(
        "invalid_value", path + " has a reasoning_content and a reasoning that differ", path));
  if (content == nullptr || content->is_null()) {
    const auto has = [&](const char* key) {
      const Json* value = message.find(key);
      return value != nullptr && !value->is_null();
    };
    const bool may_lack =
        name == "assistant" && (has("tool_calls") || has("reasoning_content") || has("reasoning"));
    if (!may_lack)
      fields.fail(api_error("missing_field", path + ".content field required", path + ".content"));
    return;
  }
  if (content->is_string()) return;
  if (!content->is_array())
    return fields.fail(api_error(
        "invalid_type",
        path + ".content must be a string or an array of parts, got " + content->kind_name(),
        path + ".content"));
  for (size_t i = 0; i < content->items().size(); ++i) {
    const Json& part = content->items()[i];
    const std::string at = path + format(".content[%zu]", i);
    const Json* type = part.find("type");
    if (type == nullptr || !type->is_string())
      return fields.fail(api_error("missing_field", at + ".type field required", at + ".type"));
    const std::string& kind = type->as_string();
    if (kind != "text" && kind != "input_text" && kind != "output_text" && kind != "refusal")
      return fields.fail(api_error("unsupported_content",
                                   at + " is " + quote_value(kind) + "; this model reads text only",
                                   at + ".type"));
    const std::string text_at = at + (kind == "refusal" ? ".refusal" : ".text");
    const Json* text = part.find(kind == "refusal" ? "refusal" : "text");
    if (text == nullptr || text->is_null())
      return fields.fail(api_error("missing_field", text_at + " field required", text_at));
    if (!text->is_string())
      return fields.fail(api_error(
          "invalid_type", text_at + " must be a string, got " + text->kind_name(), text_at));
  }
}

void read_messages(Fields& fields, const ChatModel& model, ChatRequest& out) {
  const Json* messages = fields.array("messages");
  if (fields.error()) return;
  if (messages == nullptr) return fields.fail("missing_field", "messages", "field required");
  const std::vector<Json>& items = messages->items();
  if (items.empty()) return fields.fail("invalid_value", "messages", "must not be empty");
  if (items.size() > kMaxMessages)
    return fields.fail("out_of_range", "messages",
                       format("may hold at most %zu entries, got %zu", kMaxMessages, items.size()));
  for (size_t i = 0; i < items.size() && !fields.error(); ++i) check_message(fields, items[i], i);
  if (fields.error()) return;
  out.generation.request.messages_json =
      lay_out_messages(*messages, model, out.generation.warnings).dump();
}

// The nearest effort that the template takes, the stronger one of two.
std::string nearest_effort(const std::vector<std::string>& taken, const std::string& asked) {
  const std::vector<std::string>& all = all_efforts();
  const auto rank = [&](const std::string& effort) {
    return std::find(all.begin(), all.end(), effort) - all.begin();
  };
  return *std::min_element(taken.begin(), taken.end(), [&](const auto& a, const auto& b) {
    const auto to_a = std::abs(rank(a) - rank(asked)), to_b = std::abs(rank(b) - rank(asked));
    return to_a != to_b ? to_a < to_b : rank(a) > rank(b);
  });
}

// `warnings`: nullptr when the request did not ask for it.
void set_effort(const std::string& effort, const ChatModel& model, Json& kwargs,
                std::vector<Warning>* warnings) {
  constexpr const char* kName = "reasoning_effort";
  kwargs.set("enable_thinking", effort != "none");
  const bool has_effect = effort == "none" ? model.knows_thinking : model.knows_effort;
  if (!has_effect && warnings != nullptr)
    warn(*warnings, {"template_no_effort", kName, "this model's template knows no such thing"});
  if (effort == "none" || !model.knows_effort || model.efforts.empty()) return;
  const std::string taken = nearest_effort(model.efforts, effort);
  if (taken != effort && warnings != nullptr)
    warn(*warnings,
         {"effort_substituted", kName,
          "the template does not take " + quote_value(effort) + "; " + taken + " is used"});
  kwargs.set(kName, taken);
}

// The operator's choices first, the request's over them.
void read_effort(Fields& fields, const ChatModel& model, const RequestDefaults& defaults,
                 Json& kwargs, std::vector<Warning>& warnings) {
  if (!defaults.reasoning_effort.empty())
    set_effort(defaults.reasoning_effort, model, kwargs, nullptr);
  if (defaults.thinking) kwargs.set("enable_thinking", *defaults.thinking);
  for (const auto& [key, value] : defaults.template_kwargs.members()) kwargs.set(key, value);
  const std::string effort = fields.text("reasoning_effort", "");
  if (effort.empty()) return;
  const std::vector<std::string>& all = all_efforts();
  if (std::find(all.begin(), all.end(), effort) == all.end())
    return fields.fail(
        "invalid_value", "reasoning_effort",
        "must be none, minimal, low, medium, high, xhigh or max, got " + quote_value(effort));
  set_effort(effort, model, kwargs, &warnings);
}

// Whether the template writes the opening of a reply, and what for.
void read_continuation(Fields& fields, GenerationRequest& request, Json& kwargs) {
  const bool asks_opening = fields.find("add_generation_prompt") != nullptr;
  request.add_generation_prompt = fields.boolean("add_generation_prompt", true);
  request.continue_final_message = fields.boolean("continue_final_message", false);
  if (!request.continue_final_message) return;
  if (asks_opening && request.add_generation_prompt)
    fields.fail("invalid_value", "continue_final_message",
                "and add_generation_prompt cannot both be true");
  const Json* messages = fields.array("messages");
  if (messages != nullptr && !messages->items().empty() && !fields.error()) {
    const Json& last = messages->items().back();
    if (last.find("role")->as_string() != "assistant" || has_tool_calls(last))
      fields.fail("invalid_value", "continue_final_message",
                  "needs a last message of the assistant, without tool calls");
  }
  kwargs.set("enable_thinking", false);
}

void read_reasoning_budget(Fields& fields, const Engine& engine, const RequestDefaults& defaults,
                           ReasoningBudget& budget) {
  const std::string_view name =
      fields.first_of({"thinking_budget", "thinking_token_budget", "reasoning_budget"});
  budget.max_tokens = defaults.reasoning_budget;
  if (!name.empty()) budget.max_tokens = fields.integer(name, -1, int64_t{1} << 40, -1);
  if (budget.max_tokens < 0) return;
  Result<std::vector<int32_t>> ids =
      engine.tokenize(defaults.budget_message + "\n</think>", true, false);
  if (ids) budget.closing_ids = *std::move(ids);
  if (budget.closing_ids.empty()) budget.max_tokens = -1;
}

void read_template_fields(Fields& fields, const ChatModel& model, const RequestDefaults& defaults,
                          ChatRequest& out) {
  Json kwargs = Json::object();
  read_effort(fields, model, defaults, kwargs, out.generation.warnings);
  read_continuation(fields, out.generation.request, kwargs);
  if (const Json* object = fields.object("chat_template_kwargs")) {
    if (object->members().size() > kMaxKwargs)
      fields.fail("out_of_range", "chat_template_kwargs",
                  format("may have at most %zu keys", kMaxKwargs));
    for (const auto& [key, value] : object->members()) {
      if (value.is_array() || value.is_object())
        fields.fail("invalid_type", "chat_template_kwargs." + key, "must be a scalar value");
      if (key == "chat_template")
        fields.fail(api_error("template_not_allowed",
                              "a template cannot be sent; the operator chooses it",
                              "chat_template_kwargs.chat_template"));
      kwargs.set(key, value);
    }
  }
  if (!kwargs.members().empty()) out.generation.request.template_kwargs_json = kwargs.dump();

  const std::string form = fields.text("reasoning_format", defaults.reasoning_format);
  if (form == "none")
    out.split.reasoning = SplitRules::Reasoning::kStays;
  else if (form == "inline" || form == "deepseek-legacy")
    out.split.reasoning = SplitRules::Reasoning::kInline;
  else if (form != "auto" && form != "deepseek")
    fields.fail("invalid_value", "reasoning_format",
                "must be auto, deepseek, none or inline, got " + quote_value(form));
  out.include_reasoning = fields.boolean("include_reasoning", true);
}

void read_logprobs(Fields& fields, ChatRequest& out) {
  out.logprobs = fields.boolean("logprobs", false);
  const bool has_top = fields.find("top_logprobs") != nullptr;
  const int64_t top = fields.integer("top_logprobs", 0, 20, 0);
  if (has_top && !out.logprobs)
    fields.fail("invalid_value", "top_logprobs", "needs logprobs to be true");
  if (out.logprobs) out.generation.request.top_logprobs = static_cast<int>(top);
}

}  // namespace

std::optional<ApiError> read_chat_request(const Json& body, const Engine& engine,
                                          const ChatModel& model, const ApiOptions& options,
                                          const std::string& key_digest, bool for_generation,
                                          ChatRequest& out, std::string* rendered) {
  Fields fields(body);
  out.generation = read_generation_fields(fields, engine.description(), options, false, key_digest);
  GenerationRequest& request = out.generation.request;
  read_messages(fields, model, out);
  ConstraintSpec constraint;
  read_response_format(fields, constraint);
  const ToolFields tools = read_tools(fields, model.tools, constraint, out.generation.warnings);
  request.tools_json = tools.tools_json;
  out.split.syntax = tools.syntax;
  out.split.tools = tools.tools;
  read_template_fields(fields, model, options.defaults, out);
  read_reasoning_budget(fields, engine, options.defaults, request.reasoning_budget);
  if (options.skip_parsing) {
    out.split.reasoning = SplitRules::Reasoning::kStays;
    out.split.syntax.reset();
  }
  read_logprobs(fields, out);
  if (const Json* modalities = fields.array("modalities"))
    for (const Json& entry : modalities->items())
      if (!entry.is_string() || entry.as_string() != "text")
        fields.fail("unsupported_parameter", "modalities", "may hold only \"text\"");
  fields.not_built("echo");
  fields.finish(options.strict_fields, out.generation.warnings);
  if (fields.error()) return fields.error();

  if (engine.description().chat_template_source.empty())
    return api_error("no_chat_template",
                     "this model has no chat template; use /v1/completions, or start the server "
                     "with --chat-template-file",
                     "messages");
  Result<ChatPrompt> prompt = engine.chat_prompt(request);
  if (!prompt) return engine_api_error(prompt.error());
  out.prompt_ids = std::move(prompt->ids);
  out.split.starts_in_reasoning = ends_in_open_reasoning(prompt->text);
  if (rendered != nullptr) *rendered = std::move(prompt->text);
  if (for_generation)
    fit_window(fields, out.generation, "messages", static_cast<int64_t>(out.prompt_ids.size()),
               engine.description().context, options);
  if (fields.error()) return fields.error();
  if (for_generation &&
      (has_format(constraint) || constraint.tool_use != ConstraintSpec::ToolUse::kNone)) {
    if (out.split.starts_in_reasoning)
      constraint.reasoning = ConstraintSpec::Reasoning::kOpen;
    else if (model.has_reasoning)
      constraint.reasoning = ConstraintSpec::Reasoning::kOptional;
    if (auto error = add_constraint(engine, constraint, out.generation)) return error;
  }
  // The prompt goes on as ids: it is not rendered a second time.
  request.messages_json.clear();
  request.tools_json.clear();
  request.template_kwargs_json.clear();
  request.continue_final_message = false;
  request.prompt_ids = out.prompt_ids;
  return std::nullopt;
}

}  // namespace invar::server
