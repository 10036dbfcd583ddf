// Requests: whatever cannot be honoured is refused here with the field's name, never ignored.
#include "engine/request.h"

#include <algorithm>
#include <span>

#include "base/json.h"

namespace invar {
namespace {

constexpr size_t kMaxStops = 16, kMaxStopBytes = 256, kMaxStopIds = 64;
constexpr int kMaxTopLogprobs = 20;

Result<Json> parse_field(const char* field, const std::string& text, Json::Kind kind) {
  Result<Json> json = Json::parse(text);
  if (!json) return with_context(field, json.error());
  if (json->kind() != kind)
    return invalid_argument("%s must be %s, got %s", field,
                            kind == Json::Kind::kArray ? "an array" : "an object",
                            json->kind_name());
  return json;
}

Json messages_to_json(const std::vector<ChatMessage>& messages) {
  Json array = Json::array();
  for (const ChatMessage& message : messages) {
    Json entry = Json::object();
    entry.set("role", message.role);
    entry.set("content", message.content);
    array.push_back(std::move(entry));
  }
  return array;
}

// Where a reply is to go on, in the last message and in what the template makes of it. Behind the
// text, so that a template that trims contents leaves the text's own end alone.
constexpr std::string_view kContinueMark = "\x01invar goes on here\x01";

Result<void> mark_end_of_last_message(Json& messages) {
  const std::vector<Json>& items = std::as_const(messages).items();
  const Json* role = items.empty() ? nullptr : items.back().find("role");
  const Json* tool_calls = items.empty() ? nullptr : items.back().find("tool_calls");
  if (role == nullptr || !role->is_string() || role->as_string() != "assistant" ||
      (tool_calls != nullptr && !tool_calls->is_null()))
    return invalid_argument(
        "continue_final_message needs a last message of the assistant, without tool calls");
  Json& last = messages.items().back();
  last.set("content", last.find("content")->as_string() + std::string(kContinueMark));
  return {};
}

bool cut_at_mark(std::vector<TextSegment>& segments) {
  for (size_t i = segments.size(); i-- > 0;) {
    const size_t at = segments[i].text.rfind(kContinueMark);
    if (at == std::string::npos) continue;
    segments[i].text.resize(at);
    segments.resize(i + 1);
    return true;
  }
  return false;
}

// Extra variables of a template may not replace those that the request itself decides.
Result<void> check_kwargs(const Json& kwargs) {
  static constexpr const char* kReserved[] = {"messages",  "tools",     "chat_template",
                                              "tokenize",  "bos_token", "add_generation_prompt",
                                              "eos_token", "pad_token", "unk_token"};
  for (const char* name : kReserved)
    if (kwargs.find(name) != nullptr)
      return invalid_argument("chat_template_kwargs may not set '%s'", name);
  return {};
}

// Well-formed UTF-8 without surrogates and over-long forms. Replies are valid UTF-8, so a stop
// string that is not could never match.
bool is_utf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto byte = [&](size_t k) {
      return i + k < text.size() ? static_cast<uint8_t>(text[i + k]) : uint8_t{0};
    };
    const uint8_t lead = byte(0);
    if (lead < 0x80) {
      ++i;
      continue;
    }
    const size_t size = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
    if (lead < 0xc2 || lead > 0xf4) return false;
    if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f) ||
        (lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f))
      return false;
    for (size_t k = 1; k < size; ++k)
      if ((byte(k) & 0xc0) != 0x80) return false;
    i += size;
  }
  return true;
}

Result<void> check_prompt_form(const GenerationRequest& request) {
  const int num_forms = int{!request.messages.empty()} + int{!request.messages_json.empty()} +
                        int{request.prompt.has_value()} + int{!request.prompt_ids.empty()};
  if (num_forms != 1)
    return invalid_argument(
        "a request has exactly one of messages, messages_json, prompt and "
        "prompt_ids, not empty; this one has %d",
        num_forms);
  const bool is_chat = !request.messages.empty() || !request.messages_json.empty();
  if (!is_chat && (!request.tools_json.empty() || !request.template_kwargs_json.empty() ||
                   request.continue_final_message))
    return invalid_argument(
        "tools_json, template_kwargs_json and continue_final_message go with messages, and this "
        "request has a plain prompt");
  return {};
}

Result<void> check_prompt_ids(const std::vector<int32_t>& ids, int32_t vocab_size) {
  if (ids.empty()) return invalid_argument("the prompt has no tokens");
  for (size_t i = 0; i < ids.size(); ++i)
    if (ids[i] < 0 || ids[i] >= vocab_size)
      return invalid_argument("prompt token %zu is %d; the model has ids 0 to %d", i, ids[i],
                              vocab_size - 1);
  return {};
}

Result<void> check_stops(const std::vector<std::string>& stops) {
  if (stops.size() > kMaxStops)
    return invalid_argument("stop has %zu strings, the limit is %zu", stops.size(), kMaxStops);
  for (size_t i = 0; i < stops.size(); ++i) {
    if (stops[i].empty() || stops[i].size() > kMaxStopBytes)
      return invalid_argument("stop[%zu] has %zu bytes, allowed are 1 to %zu", i, stops[i].size(),
                              kMaxStopBytes);
    if (!is_utf8(stops[i])) return invalid_argument("stop[%zu] is not valid UTF-8", i);
  }
  return {};
}

Result<void> check_ids(const char* field, std::span<const int32_t> ids, int32_t vocab_size) {
  for (const int32_t id : ids)
    if (id < 0 || id >= vocab_size)
      return invalid_argument("%s has %d; the model has ids 0 to %d", field, id, vocab_size - 1);
  return {};
}

Result<std::vector<int32_t>> sorted_stop_ids(std::vector<int32_t> ids, int32_t vocab_size) {
  if (ids.size() > kMaxStopIds)
    return invalid_argument("stop_token_ids has %zu ids, the limit is %zu", ids.size(),
                            kMaxStopIds);
  INVAR_TRY_VOID(check_ids("stop_token_ids", ids, vocab_size));
  std::sort(ids.begin(), ids.end());
  return ids;
}

}  // namespace

ChatTemplates::ChatTemplates(const std::vector<std::pair<std::string, std::string>>& sources) {
  for (const auto& [name, source] : sources)
    templates_.emplace_back(name, ChatTemplate::parse(source));
}

Result<std::vector<TextSegment>> ChatTemplates::render(const GenerationRequest& request,
                                                       const Tokenizer& tokenizer) const {
  if (request.messages.empty() == request.messages_json.empty())
    return invalid_argument("a chat request has exactly one of messages and messages_json");
  TemplateInput input;
  if (request.messages.empty()) {
    INVAR_TRY(input.messages,
              parse_field("messages_json", request.messages_json, Json::Kind::kArray));
  } else {
    input.messages = messages_to_json(request.messages);
  }
  INVAR_TRY_VOID(prepare_messages(input.messages));
  if (!request.tools_json.empty()) {
    INVAR_TRY(input.tools, parse_field("tools_json", request.tools_json, Json::Kind::kArray));
    if (input.tools.items().empty()) input.tools = Json();  // an empty list means no tools
  }
  if (!request.template_kwargs_json.empty()) {
    INVAR_TRY(input.kwargs, parse_field("template_kwargs_json", request.template_kwargs_json,
                                        Json::Kind::kObject));
    INVAR_TRY_VOID(check_kwargs(input.kwargs));
  }
  input.add_generation_prompt = request.add_generation_prompt && !request.continue_final_message;
  if (request.continue_final_message) INVAR_TRY_VOID(mark_end_of_last_message(input.messages));
  const auto text_of = [&](int32_t id) {
    return id >= 0 ? std::string(tokenizer.token_text(id)) : std::string();
  };
  input.bos_token = text_of(tokenizer.bos_id);
  input.eos_token = text_of(tokenizer.eos_id);
  input.pad_token = text_of(tokenizer.pad_id);
  input.unk_token = text_of(tokenizer.unk_id);

  const auto named = [&](std::string_view name) {
    return std::find_if(templates_.begin(), templates_.end(),
                        [&](const auto& entry) { return entry.first == name; });
  };
  auto chosen = input.tools.is_null() ? templates_.end() : named("tool_use");
  if (chosen == templates_.end()) chosen = named("default");
  if (chosen == templates_.end())
    return invalid_argument(
        "this model has no chat template; send a plain prompt, or give one with "
        "chat_template_file");
  if (!chosen->second) return with_context("chat template", chosen->second.error());
  Result<std::vector<TextSegment>> segments = chosen->second->render(input);
  if (!segments) return with_context("chat template", segments.error());
  if (request.continue_final_message && !cut_at_mark(*segments))
    return invalid_argument(
        "chat template: it does not show the last message as it is, so "
        "continue_final_message has nothing to go on with");
  return segments;
}

std::string joined(const std::vector<TextSegment>& segments) {
  std::string text;
  for (const TextSegment& segment : segments) text += segment.text;
  return text;
}

Result<ChatPrompt> make_chat_prompt(const GenerationRequest& request,
                                    const ChatTemplates& templates, const Tokenizer& tokenizer,
                                    const RequestLimits& limits) {
  INVAR_TRY_VOID(check_prompt_form(request));
  INVAR_TRY(const std::vector<TextSegment> segments, templates.render(request, tokenizer));
  // The template writes BOS where the model wants it.
  ChatPrompt prompt{joined(segments), tokenizer.encode(segments, false)};
  INVAR_TRY_VOID(check_prompt_ids(prompt.ids, limits.vocab_size));
  return prompt;
}

Result<std::vector<int32_t>> make_prompt_ids(const GenerationRequest& request,
                                             const ChatTemplates& templates,
                                             const Tokenizer& tokenizer,
                                             const RequestLimits& limits) {
  INVAR_TRY_VOID(check_prompt_form(request));
  if (request.prompt_ids.empty() && !request.prompt) {
    INVAR_TRY(ChatPrompt prompt, make_chat_prompt(request, templates, tokenizer, limits));
    return std::move(prompt.ids);
  }
  std::vector<int32_t> ids =
      request.prompt ? tokenizer.encode(*request.prompt, false, true) : request.prompt_ids;
  INVAR_TRY_VOID(check_prompt_ids(ids, limits.vocab_size));
  return ids;
}

Result<ReplySpec> make_reply_spec(const GenerationRequest& request, int64_t num_prompt_tokens,
                                  const RequestLimits& limits) {
  INVAR_TRY_VOID(check_sampling_params(request.sampling, limits.vocab_size));
  INVAR_TRY_VOID(check_stops(request.stop));
  if (request.top_logprobs < -1 || request.top_logprobs > kMaxTopLogprobs)
    return invalid_argument("top_logprobs must be between 0 and %d, or -1 for none, got %d",
                            kMaxTopLogprobs, request.top_logprobs);
  if (request.max_tokens < -1)
    return invalid_argument(
        "max_tokens must be at least 0, or -1 for the rest of the window, "
        "got %ld",
        long{request.max_tokens});
  const int64_t left = limits.context - num_prompt_tokens;
  if (request.max_tokens > left || (request.max_tokens < 0 && left < 1)) {
    const std::string asked = request.max_tokens < 0
                                  ? "no max_tokens, so at least 1"
                                  : format("max_tokens %ld", long{request.max_tokens});
    return resource_exhausted(
        "the context window has %ld positions; the prompt has %ld tokens and "
        "the request asks for %s more. Shorten the prompt, lower max_tokens or "
        "open the model with a larger context",
        long{limits.context}, long{num_prompt_tokens}, asked.c_str());
  }
  ReplySpec spec;
  spec.sampling = request.sampling;
  spec.max_tokens = request.max_tokens < 0 ? left : request.max_tokens;
  spec.min_tokens = request.min_tokens;
  if (request.min_tokens < 0 || request.min_tokens > spec.max_tokens)
    return invalid_argument("min_tokens must be between 0 and max_tokens %ld, got %ld",
                            long{spec.max_tokens}, long{request.min_tokens});
  spec.stop = {request.stop, request.include_stop, request.stop_in_reasoning};
  INVAR_TRY(spec.stop_token_ids, sorted_stop_ids(request.stop_token_ids, limits.vocab_size));
  spec.ignore_end = request.ignore_end;
  spec.top_logprobs = request.top_logprobs;
  spec.constraint = request.constraint;
  spec.make_parser = request.make_parser;
  spec.reasoning_budget = request.reasoning_budget;
  if (spec.reasoning_budget.max_tokens >= 0 &&
      (!spec.make_parser || spec.reasoning_budget.closing_ids.empty()))
    return invalid_argument("reasoning_budget needs make_parser and closing_ids");
  INVAR_TRY_VOID(check_ids("reasoning_budget.closing_ids", spec.reasoning_budget.closing_ids,
                           limits.vocab_size));
  spec.report_progress = request.report_progress;
  return spec;
}

}  // namespace invar
