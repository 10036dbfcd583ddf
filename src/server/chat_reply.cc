#include "server/chat_reply.h"

#include <algorithm>
#include <utility>

#include "base/hash.h"
#include "server/http/request_id.h"
#include "server/reply_splitter.h"

namespace invar::server {

using Kind = ReplyPart::Kind;

namespace {

double milliseconds(std::chrono::steady_clock::time_point from,
                    std::chrono::steady_clock::time_point to) {
  return std::chrono::duration<double, std::milli>(to - from).count();
}

}  // namespace

ChatReply::ChatReply(Engine& engine, ChatRequest request, const char* call_prefix)
    : engine_(engine),
      chat_(std::move(request)),
      call_prefix_(call_prefix),
      prompt_sha_(token_sha(chat_.prompt_ids)),
      texts_(static_cast<size_t>(chat_.generation.num_choices)),
      aligners_(texts_.size()),
      num_open_(chat_.generation.num_choices) {}

std::optional<ApiError> ChatReply::start() {
  GenerationRequest& request = chat_.generation.request;
  request.make_parser = [rules = chat_.split] { return std::make_unique<ReplySplitter>(rules); };
  Result<std::unique_ptr<Choices>> started =
      Choices::start(engine_, choices_of(request, chat_.generation.num_choices));
  if (!started) return engine_api_error(started.error());
  choices_ = *std::move(started);
  return std::nullopt;
}

std::optional<ChatReply::Event> ChatReply::next() {
  std::optional<Choices::Event> from = choices_->next();
  if (!from) return std::nullopt;
  Event event;
  event.index = from->index;
  if (!from->token) {
    event.ended = true;
    --num_open_;
    warn_of_calls(event.index);
    if (ending(event.index) == Ending::kToolCalls) choices_->set_called_tools(event.index);
  } else if (from->token->progress) {
    if (event.index != 0) return event;  // the choices share a prompt
    if (!progress_) prefill_began_ = std::chrono::steady_clock::now();
    event.progress = progress_ = from->token->progress;
  } else {
    take_token(*std::move(from->token), event);
  }
  return event;
}

void ChatReply::take_token(TokenEvent token, Event& event) {
  Choice& choice = texts_[static_cast<size_t>(event.index)];
  LogprobAligner& aligner = aligners_[static_cast<size_t>(event.index)];
  if (!first_token_) first_token_ = std::chrono::steady_clock::now();
  ++num_tokens_;
  if (token.is_reasoning) ++num_reasoning_tokens_;
  event.token_id = token.id;
  std::vector<ReplyPart> parts = std::move(token.parts);
  if (chat_.logprobs) {
    std::string bytes = engine_.token_bytes(token.id);
    aligner.push({std::move(token), std::move(bytes)});
  }
  for (ReplyPart& from : parts) {
    Part part{from.kind, std::move(from.text), {}};
    switch (part.kind) {
      case Kind::kReasoning:
        if (!chat_.include_reasoning) continue;
        choice.reasoning += part.text;
        break;
      case Kind::kContent:
        if (chat_.logprobs)
          part.logprobs = aligner.deliver(from.begin, from.begin + part.text.size());
        choice.logprobs.insert(choice.logprobs.end(), part.logprobs.begin(), part.logprobs.end());
        choice.content += part.text;
        break;
      case Kind::kCallBegin:
        choice.calls.push_back({new_id(call_prefix_), part.text, ""});
        break;
      case Kind::kArguments:
        choice.calls.back().arguments += part.text;
    }
    event.parts.push_back(std::move(part));
  }
}

// Only where calls could not be enforced: they are delivered as the model wrote them.
void ChatReply::warn_of_calls(int index) {
  const auto tell = [&](const char* code, const Call& call, const char* what) {
    warn(chat_.generation.warnings, {code, "tools", quote_value(call.name) + what});
  };
  const bool was_cut = result(index).finish_reason != FinishReason::kStop;
  for (const Call& call : choice(index).calls) {
    const auto& tools = chat_.split.tools;
    if (std::none_of(tools.begin(), tools.end(),
                     [&](const ToolFunction& tool) { return tool.name == call.name; }))
      tell("unknown_tool", call, " was called and is none of the tools");
    if (const Result<Json> json = Json::parse(call.arguments);
        !was_cut && (!json || !json->is_object()))
      tell("invalid_tool_arguments", call, " was called with arguments that are no JSON object");
  }
}

ChatReply::Ending ChatReply::ending(int index) const {
  const GenerationResult& r = result(index);
  // A reply that was cut ends as such, inside a call too.
  if (r.finish_reason == FinishReason::kLength)
    return chat_.generation.ends_at_window ? Ending::kWindow : Ending::kLimit;
  if (!choice(index).calls.empty()) return Ending::kToolCalls;
  return r.stop_text.empty() && !r.stop_token_id ? Ending::kEnd : Ending::kStop;
}

bool ChatReply::was_cut(int index) const {
  const Ending how = ending(index);
  return how == Ending::kLimit || how == Ending::kWindow;
}

Totals ChatReply::totals() const {
  Totals totals;
  totals.num_reasoning_tokens = num_reasoning_tokens_;
  if (num_open_ == 0) {
    totals.add_prompt(result(0), chat_.generation.request.use_prefix_cache);
    for (int i = 0; i < num_choices(); ++i) totals.add_choice(result(i));
    return totals;
  }
  totals.num_prompt_tokens = static_cast<int64_t>(chat_.prompt_ids.size());
  totals.num_completion_tokens = num_tokens_;
  if (progress_) {
    totals.num_cached_tokens = progress_->num_cached_tokens;
    totals.queue_ms = progress_->queue_ms;
    totals.prefill_ms =
        first_token_ ? milliseconds(*prefill_began_, *first_token_) : progress_->prefill_ms;
  }
  if (first_token_)
    totals.decode_ms = milliseconds(*first_token_, std::chrono::steady_clock::now());
  return totals;
}

Json ChatReply::invar_facts() const {
  return invar_json(totals(), engine_.description(), chat_.generation, prompt_sha_);
}

}  // namespace invar::server
