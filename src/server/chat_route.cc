#include "server/chat_route.h"

#include <algorithm>
#include <ctime>

#include "base/hash.h"
#include "server/answer_parts.h"
#include "server/chat_request.h"
#include "server/choices.h"
#include "server/http/json_body.h"
#include "server/http/request_id.h"
#include "server/http/sse.h"
#include "server/logprobs.h"
#include "server/reasoning_filter.h"

namespace invar::server {
namespace {

// What has come of one choice so far.
struct ChoiceText {
  ChoiceText(bool starts_in_reasoning, const std::optional<ToolSyntax>& syntax)
      : filter(starts_in_reasoning) {
    if (syntax) tool_filter.emplace(*syntax);
  }
  ReasoningFilter filter;
  std::optional<ToolCallFilter> tool_filter;
  LogprobAligner aligner;
  std::string reasoning, content;
  struct Call {
    std::string id, name, arguments;
  };
  std::vector<Call> calls;
  Json logprobs = Json::array();
  Json token_ids = Json::array();
};

// One request's answer, from its first token to its last.
class ChatAnswer {
 public:
  ChatAnswer(Engine& engine, ChatRequest request, Request& http,
             std::shared_ptr<ResponseWriter> writer)
      : engine_(engine),
        chat_(std::move(request)),
        request_id_(http.request_id),
        writer_(std::move(writer)),
        id_(new_id("chatcmpl-")),
        created_(static_cast<int64_t>(std::time(nullptr))),
        fingerprint_(system_fingerprint(engine.description())),
        prompt_sha_(token_sha(chat_.prompt_ids)) {
    for (int i = 0; i < chat_.generation.num_choices; ++i)
      texts_.emplace_back(chat_.starts_in_reasoning, chat_.tool_syntax);
  }

  void run() {
    Result<std::unique_ptr<Choices>> started =
        Choices::start(engine_, choices_of(chat_.generation.request, chat_.generation.num_choices));
    if (!started) return writer_->fail(engine_api_error(started.error()));
    const std::shared_ptr<Choices> choices = *std::move(started);
    writer_->on_closed([choices](CloseReason) { choices->cancel(); });
    if (chat_.generation.stream)
      stream(*choices);
    else
      answer(*choices);
    writer_->on_closed(nullptr);
  }

 private:
  struct Delta {
    std::string reasoning;
    std::vector<ToolCallFilter::Event> events;  // content and calls, in order
    Json logprobs = Json::array();
  };

  // What a token adds to what the client sees. `token` empty: the choice has ended.
  Delta take(int index, const std::optional<TokenEvent>& token) {
    ChoiceText& text = texts_[static_cast<size_t>(index)];
    Delta delta;
    const bool was_inside = text.filter.inside();
    ReasoningFilter::Piece piece;
    if (token) {
      ++num_tokens_;
      if (chat_.generation.return_token_ids) text.token_ids.push_back(int64_t{token->id});
      if (!chat_.split_reasoning)
        piece.content = token->text;
      else
        piece = text.filter.push(token->text);
      if (was_inside || text.filter.inside()) ++totals_.num_reasoning_tokens;
    } else if (chat_.split_reasoning) {
      piece = text.filter.finish();
    }
    if (chat_.include_reasoning) delta.reasoning = std::move(piece.reasoning);
    if (text.tool_filter) {
      delta.events = text.tool_filter->push(piece.content);
      if (!token)
        for (ToolCallFilter::Event& event : text.tool_filter->finish())
          delta.events.push_back(std::move(event));
    } else if (!piece.content.empty()) {
      delta.events.push_back({ToolCallFilter::Event::kContent, std::move(piece.content)});
    }
    if (chat_.logprobs && token) {
      text.aligner.push({*token, engine_.token_bytes(token->id)});
      const bool is_content = std::any_of(
          delta.events.begin(), delta.events.end(),
          [](const auto& event) { return event.kind == ToolCallFilter::Event::kContent; });
      for (const TokenEntry& entry : text.aligner.deliver(token->text))
        if (is_content) delta.logprobs.push_back(chat_logprob_json(engine_, entry));
    }
    text.reasoning += delta.reasoning;
    for (const ToolCallFilter::Event& event : delta.events) switch (event.kind) {
        case ToolCallFilter::Event::kContent:
          text.content += event.text;
          break;
        case ToolCallFilter::Event::kCallBegin:
          text.calls.push_back({new_id("call_"), event.text, ""});
          break;
        case ToolCallFilter::Event::kArguments:
          text.calls.back().arguments += event.text;
      }
    return delta;
  }

  void add_totals(const Choices& choices) {
    totals_.add_prompt(choices.result(0), chat_.generation.request.use_prefix_cache);
    for (int i = 0; i < choices.size(); ++i) totals_.add_choice(choices.result(i));
  }

  Json envelope(const char* object) const {
    Json json = Json::object();
    json.set("id", id_);
    json.set("object", object);
    json.set("created", created_);
    json.set("model", chat_.generation.model);
    json.set("system_fingerprint", fingerprint_);
    return json;
  }

  static Json logprobs_json(Json content) {
    Json json = Json::object();
    json.set("content", content.items().empty() ? Json() : std::move(content));
    json.set("refusal", Json());
    return json;
  }

  // Calls end a reply as such, unless it was cut inside one.
  const char* ending(int index, const GenerationResult& result) const {
    const bool is_cut = result.finish_reason == FinishReason::kLength;
    return !texts_[static_cast<size_t>(index)].calls.empty() && !is_cut ? "tool_calls"
                                                                        : finish_reason(result);
  }

  static Json calls_json(std::vector<ChoiceText::Call>& calls) {
    Json list = Json::array();
    for (ChoiceText::Call& call : calls) {
      Json function = Json::object();
      function.set("name", std::move(call.name));
      function.set("arguments", std::move(call.arguments));
      Json json = Json::object();
      json.set("id", std::move(call.id));
      json.set("type", "function");
      json.set("function", std::move(function));
      list.push_back(std::move(json));
    }
    return list;
  }

  // ---- Whole

  void answer(Choices& choices) {
    while (const std::optional<Choices::Event> event = choices.next()) {
      Delta delta = take(event->index, event->token);
      ChoiceText& text = texts_[static_cast<size_t>(event->index)];
      for (Json& entry : delta.logprobs.items()) text.logprobs.push_back(std::move(entry));
    }
    Json list = Json::array();
    for (int i = 0; i < choices.size(); ++i) {
      if (const auto error = reply_error(choices.result(i))) return writer_->fail(*error);
      ChoiceText& text = texts_[static_cast<size_t>(i)];
      Json message = Json::object();
      message.set("role", "assistant");
      message.set("content", text.content.empty() && !text.calls.empty()
                                 ? Json()
                                 : Json(std::move(text.content)));
      if (!text.reasoning.empty()) message.set("reasoning_content", std::move(text.reasoning));
      message.set("refusal", Json());
      if (!text.calls.empty()) message.set("tool_calls", calls_json(text.calls));
      Json choice = Json::object();
      choice.set("index", i);
      choice.set("message", std::move(message));
      choice.set("logprobs", chat_.logprobs ? logprobs_json(std::move(text.logprobs)) : Json());
      choice.set("finish_reason", ending(i, choices.result(i)));
      choice.set("stop_reason", stop_reason(choices.result(i)));
      if (chat_.generation.return_token_ids) choice.set("token_ids", std::move(text.token_ids));
      list.push_back(std::move(choice));
    }
    add_totals(choices);
    Json json = envelope("chat.completion");
    json.set("choices", std::move(list));
    json.set("usage", usage_json(totals_));
    if (chat_.generation.return_token_ids) json.set("prompt_token_ids", ids_json(chat_.prompt_ids));
    json.set("timings", timings_json(totals_));
    json.set("invar", invar_json(totals_, engine_.description(), chat_.generation, prompt_sha_));
    writer_->send(json_response(json.dump()));
  }

  // ---- Stream

  // False: nobody listens any more.
  bool write_chunk(int index, Json delta, Json logprobs, Json finish, Json stop,
                   bool is_last_json) {
    Json choice = Json::object();
    choice.set("index", index);
    choice.set("delta", std::move(delta));
    choice.set("logprobs", std::move(logprobs));
    choice.set("finish_reason", finish);
    if (!finish.is_null()) choice.set("stop_reason", std::move(stop));
    if (chat_.generation.return_token_ids) {
      Json& ids = texts_[static_cast<size_t>(index)].token_ids;
      choice.set("token_ids", std::exchange(ids, Json::array()));
    }
    Json list = Json::array();
    list.push_back(std::move(choice));
    Json chunk = envelope("chat.completion.chunk");
    chunk.set("choices", std::move(list));
    if (chat_.generation.continuous_usage)
      chunk.set("usage", usage_json(running_totals()));
    else if (chat_.generation.include_usage)
      chunk.set("usage", Json());
    if (!std::exchange(started_, true) && chat_.generation.return_token_ids)
      chunk.set("prompt_token_ids", ids_json(chat_.prompt_ids));
    if (is_last_json) add_last_fields(chunk);
    return writer_->write_event(sse_data(chunk.dump()));
  }

  // What can be said of a stream that goes on.
  Totals running_totals() const {
    if (!totals_.token_shas.empty()) return totals_;
    Totals running = totals_;
    running.num_prompt_tokens = static_cast<int64_t>(chat_.prompt_ids.size());
    running.num_completion_tokens = num_tokens_;
    return running;
  }

  void add_last_fields(Json& chunk) {
    chunk.set("timings", timings_json(totals_));
    chunk.set("invar", invar_json(totals_, engine_.description(), chat_.generation, prompt_sha_));
  }

  static Json text_delta(const char* key, std::string text) {
    Json delta = Json::object();
    delta.set(key, std::move(text));
    return delta;
  }

  bool write_delta(int index, Delta delta, size_t first_new_call) {
    if (!delta.reasoning.empty() &&
        !write_chunk(index, text_delta("reasoning_content", std::move(delta.reasoning)), Json(),
                     Json(), Json(), false))
      return false;
    size_t num_calls = first_new_call;
    for (ToolCallFilter::Event& event : delta.events) {
      if (event.kind == ToolCallFilter::Event::kContent) {
        Json logprobs =
            chat_.logprobs ? logprobs_json(std::exchange(delta.logprobs, Json::array())) : Json();
        if (!write_chunk(index, text_delta("content", std::move(event.text)), std::move(logprobs),
                         Json(), Json(), false))
          return false;
        continue;
      }
      const bool begins = event.kind == ToolCallFilter::Event::kCallBegin;
      if (begins) ++num_calls;
      if (!write_chunk(index, call_delta(index, num_calls - 1, begins, std::move(event.text)),
                       Json(), Json(), Json(), false))
        return false;
    }
    return true;
  }

  Json call_delta(int choice, size_t call, bool begins, std::string text) const {
    Json function = Json::object();
    Json json = Json::object();
    json.set("index", static_cast<int64_t>(call));
    if (begins) {
      json.set("id", texts_[static_cast<size_t>(choice)].calls[call].id);
      json.set("type", "function");
      function.set("name", std::move(text));
      function.set("arguments", "");
    } else {
      function.set("arguments", std::move(text));
    }
    json.set("function", std::move(function));
    Json list = Json::array();
    list.push_back(std::move(json));
    Json delta = Json::object();
    delta.set("tool_calls", std::move(list));
    return delta;
  }

  void stream(Choices& choices) {
    const std::chrono::seconds ping(std::max(0, chat_.generation.sse_ping_seconds));
    if (!writer_->start_stream(sse_head(ApiStyle::kOpenAi, request_id_, ping))) return;
    for (int i = 0; i < choices.size(); ++i) {
      Json opening = Json::object();
      opening.set("role", "assistant");
      opening.set("content", "");
      if (!write_chunk(i, std::move(opening), Json(), Json(), Json(), false)) return;
    }
    int num_open = choices.size();
    while (const std::optional<Choices::Event> event = choices.next()) {
      const size_t num_calls = texts_[static_cast<size_t>(event->index)].calls.size();
      if (!write_delta(event->index, take(event->index, event->token), num_calls)) return;
      if (event->token) continue;
      const GenerationResult& result = choices.result(event->index);
      if (const auto error = reply_error(result)) return writer_->fail(*error);
      if (--num_open == 0) add_totals(choices);
      if (!write_chunk(event->index, Json::object(), Json(), ending(event->index, result),
                       stop_reason(result), num_open == 0 && !chat_.generation.include_usage))
        return;
    }
    if (chat_.generation.include_usage) {
      Json chunk = envelope("chat.completion.chunk");
      chunk.set("choices", Json::array());
      chunk.set("usage", usage_json(totals_));
      add_last_fields(chunk);
      if (!writer_->write_event(sse_data(chunk.dump()))) return;
    }
    if (writer_->write_event(std::string(kSseDone))) writer_->end_stream();
  }

  Engine& engine_;
  ChatRequest chat_;
  const std::string request_id_;
  const std::shared_ptr<ResponseWriter> writer_;
  const std::string id_;
  const int64_t created_;
  const std::string fingerprint_, prompt_sha_;
  std::vector<ChoiceText> texts_;
  Totals totals_;
  int64_t num_tokens_ = 0;
  bool started_ = false;  // a chunk was sent
};

}  // namespace

void add_chat_routes(Router& router, EngineOf engine, const ApiOptions& options) {
  const auto model = std::make_shared<ChatModel::Once>();
  for (const char* path : {"/v1/chat/completions", "/chat/completions"}) {
    Route route;
    route.method = "POST";
    route.path = path;
    route.needs_engine = true;
    route.handler = [engine, model, &options](Request http,
                                              std::shared_ptr<ResponseWriter> writer) {
      Json body;
      if (const auto error = parse_json_body(http.body, body)) return writer->fail(*error);
      ChatRequest request;
      if (const auto error = read_chat_request(body, *engine(), model->of(*engine()), options,
                                               http.key_digest, true, request))
        return writer->fail(*error);
      ChatAnswer(*engine(), std::move(request), http, std::move(writer)).run();
    };
    router.add(std::move(route));
  }
}

}  // namespace invar::server
