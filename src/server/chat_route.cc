#include "server/chat_route.h"

#include <algorithm>
#include <chrono>
#include <ctime>

#include "server/answer_chat.h"
#include "server/answer_parts.h"
#include "server/http/json_body.h"
#include "server/http/request_id.h"
#include "server/http/sse.h"
#include "server/progress_pace.h"

namespace invar::server {
namespace {

using Kind = ReplyPart::Kind;

// Calls end a reply as such, unless it was cut inside one.
const char* finish_name(ChatReply::Ending ending) {
  switch (ending) {
    case ChatReply::Ending::kEnd:
    case ChatReply::Ending::kStop:
      return "stop";
    case ChatReply::Ending::kToolCalls:
      return "tool_calls";
    case ChatReply::Ending::kLimit:
    case ChatReply::Ending::kWindow:
      return "length";
  }
  return "stop";
}

// One request's answer, from its first token to its last.
class ChatAnswer {
 public:
  ChatAnswer(ChatReply& reply, std::string request_id, std::shared_ptr<ResponseWriter> writer)
      : reply_(reply),
        engine_(reply.engine()),
        generation_(reply.request().generation),
        request_id_(std::move(request_id)),
        writer_(std::move(writer)),
        id_(new_id("chatcmpl-")),
        created_(static_cast<int64_t>(std::time(nullptr))),
        fingerprint_(system_fingerprint(engine_.description())),
        token_ids_(static_cast<size_t>(reply.num_choices())) {}

  const std::string& id() const { return id_; }

  void answer() {
    while (const std::optional<ChatReply::Event> event = reply_.next()) note_token(*event);
    Json list = Json::array();
    for (int i = 0; i < reply_.num_choices(); ++i) {
      if (const auto error = reply_.error(i)) return writer_->fail(*error);
      const ChatReply::Choice& text = reply_.choice(i);
      Json message = Json::object();
      message.set("role", "assistant");
      const bool only_calls = text.content.empty() && !text.calls.empty();
      message.set("content", only_calls ? Json() : Json(text.content));
      if (!text.reasoning.empty()) message.set("reasoning_content", text.reasoning);
      message.set("refusal", Json());
      if (!text.calls.empty()) message.set("tool_calls", calls_json(text.calls));
      Json choice = Json::object();
      choice.set("index", i);
      choice.set("message", std::move(message));
      choice.set("logprobs", logprobs_json(text.logprobs));
      choice.set("finish_reason", finish_name(reply_.ending(i)));
      choice.set("stop_reason", stop_reason(reply_.result(i)));
      add_token_ids(choice, i);
      list.push_back(std::move(choice));
    }
    Json json = envelope("chat.completion");
    json.set("choices", std::move(list));
    json.set("usage", usage_json(reply_.totals()));
    add_prompt_ids(json);
    add_last_fields(json);
    writer_->send(json_response(json.dump()));
  }

  void stream() {
    if (!writer_->start_stream(
            sse_head(ApiStyle::kOpenAi, request_id_, ping_interval(generation_))))
      return;
    for (int i = 0; i < reply_.num_choices(); ++i) {
      Json opening = Json::object();
      opening.set("role", "assistant");
      opening.set("content", "");
      if (!write_choice(open_choice(i, std::move(opening), Json()), i, false)) return;
    }
    int num_open = reply_.num_choices();
    while (const std::optional<ChatReply::Event> event = reply_.next()) {
      note_token(*event);
      if (event->progress && !write_progress(*event->progress)) return;
      if (!write_parts(*event)) return;
      if (!event->ended) continue;
      if (const auto error = reply_.error(event->index)) return writer_->fail(*error);
      --num_open;
      Json choice = open_choice(event->index, Json::object(), Json());
      choice.set("finish_reason", finish_name(reply_.ending(event->index)));
      choice.set("stop_reason", stop_reason(reply_.result(event->index)));
      if (!write_choice(std::move(choice), event->index,
                        num_open == 0 && !generation_.include_usage))
        return;
    }
    if (generation_.include_usage) {
      Json chunk = envelope("chat.completion.chunk");
      chunk.set("choices", Json::array());
      chunk.set("usage", usage_json(reply_.totals()));
      if (!write(std::move(chunk), true)) return;
    }
    if (writer_->write_event(std::string(kSseDone))) writer_->end_stream();
  }

 private:
  Json envelope(const char* object) const {
    Json json = Json::object();
    json.set("id", id_);
    json.set("object", object);
    json.set("created", created_);
    json.set("model", generation_.model);
    json.set("system_fingerprint", fingerprint_);
    return json;
  }

  Json logprobs_json(const std::vector<TokenEntry>& entries) const {
    if (!reply_.request().logprobs) return Json();
    Json content = Json::array();
    for (const TokenEntry& entry : entries) content.push_back(chat_logprob_json(engine_, entry));
    Json json = Json::object();
    json.set("content", entries.empty() ? Json() : std::move(content));
    json.set("refusal", Json());
    return json;
  }

  static Json calls_json(const std::vector<ChatReply::Call>& calls) {
    Json list = Json::array();
    for (const ChatReply::Call& call : calls) {
      Json function = Json::object();
      function.set("name", call.name);
      function.set("arguments", call.arguments);
      Json json = Json::object();
      json.set("id", call.id);
      json.set("type", "function");
      json.set("function", std::move(function));
      list.push_back(std::move(json));
    }
    return list;
  }

  void note_token(const ChatReply::Event& event) {
    if (generation_.return_token_ids && event.token_id)
      token_ids_[static_cast<size_t>(event.index)].push_back(*event.token_id);
  }

  void add_token_ids(Json& choice, int index) {
    if (!generation_.return_token_ids) return;
    std::vector<int32_t>& ids = token_ids_[static_cast<size_t>(index)];
    choice.set("token_ids", ids_json(ids));
    ids.clear();
  }

  // Of the answer, or of a stream's first chunk.
  void add_prompt_ids(Json& json) const {
    if (generation_.return_token_ids)
      json.set("prompt_token_ids", ids_json(reply_.request().prompt_ids));
  }

  void add_last_fields(Json& json) const {
    json.set("timings", timings_json(reply_.totals()));
    json.set("invar", reply_.invar_facts());
    if (!generation_.metadata.is_null()) json.set("metadata", generation_.metadata);
  }

  // ---- Stream

  // False: nobody listens any more.
  bool write(Json chunk, bool is_last) {
    if (generation_.continuous_usage)
      chunk.set("usage", usage_json(reply_.totals()));
    else if (generation_.include_usage && chunk.find("usage") == nullptr)
      chunk.set("usage", Json());
    if (!std::exchange(started_, true)) add_prompt_ids(chunk);
    if (is_last)
      add_last_fields(chunk);
    else if (generation_.timings_per_token)
      chunk.set("timings", timings_json(reply_.totals()));
    return writer_->write_event(sse_data(chunk.dump()));
  }

  bool write_choice(Json choice, int index, bool is_last) {
    add_token_ids(choice, index);
    Json list = Json::array();
    list.push_back(std::move(choice));
    Json chunk = envelope("chat.completion.chunk");
    chunk.set("choices", std::move(list));
    return write(std::move(chunk), is_last);
  }

  static Json open_choice(int index, Json delta, Json logprobs) {
    Json choice = Json::object();
    choice.set("index", index);
    choice.set("delta", std::move(delta));
    choice.set("logprobs", std::move(logprobs));
    choice.set("finish_reason", Json());
    return choice;
  }

  static Json text_delta(const char* key, const std::string& text) {
    Json delta = Json::object();
    delta.set(key, text);
    return delta;
  }

  // `call`: which of the choice's calls it is about.
  Json call_delta(int index, size_t call, const ChatReply::Part& part) const {
    Json function = Json::object();
    Json json = Json::object();
    json.set("index", static_cast<int64_t>(call));
    if (part.kind == Kind::kCallBegin) {
      json.set("id", reply_.choice(index).calls[call].id);
      json.set("type", "function");
      function.set("name", part.text);
      function.set("arguments", "");
    } else {
      function.set("arguments", part.text);
    }
    json.set("function", std::move(function));
    Json list = Json::array();
    list.push_back(std::move(json));
    Json delta = Json::object();
    delta.set("tool_calls", std::move(list));
    return delta;
  }

  bool write_parts(const ChatReply::Event& event) {
    // Calls that begin in this event are in the choice already: count back to the first of them.
    size_t next_call = reply_.choice(event.index).calls.size() -
                       static_cast<size_t>(std::count_if(
                           event.parts.begin(), event.parts.end(),
                           [](const auto& part) { return part.kind == Kind::kCallBegin; }));
    for (const ChatReply::Part& part : event.parts) {
      Json delta, logprobs;
      switch (part.kind) {
        case Kind::kReasoning:
          delta = text_delta("reasoning_content", part.text);
          break;
        case Kind::kContent:
          delta = text_delta("content", part.text);
          logprobs = logprobs_json(part.logprobs);
          break;
        case Kind::kCallBegin:
          delta = call_delta(event.index, next_call++, part);
          break;
        case Kind::kArguments:
          delta = call_delta(event.index, next_call - 1, part);
      }
      if (!write_choice(open_choice(event.index, std::move(delta), std::move(logprobs)),
                        event.index, false))
        return false;
    }
    return true;
  }

  bool write_progress(const PromptProgress& progress) {
    const int64_t total = static_cast<int64_t>(reply_.request().prompt_ids.size());
    if (!generation_.return_progress || !pace_.is_due(progress, total)) return true;
    Json json = Json::object();
    json.set("total", total);
    json.set("cache", progress.num_cached_tokens);
    json.set("processed", progress.num_computed_tokens);
    json.set("time_ms", progress.prefill_ms);
    Json chunk = envelope("chat.completion.chunk");
    chunk.set("choices", Json::array());
    chunk.set("prompt_progress", std::move(json));
    return write(std::move(chunk), false);
  }

  ChatReply& reply_;
  Engine& engine_;
  const GenerationFields& generation_;
  const std::string request_id_;
  const std::shared_ptr<ResponseWriter> writer_;
  const std::string id_;
  const int64_t created_;
  const std::string fingerprint_;
  std::vector<std::vector<int32_t>> token_ids_;  // by choice, not yet sent
  ProgressPace pace_;
  bool started_ = false;  // a chunk was sent
};

void respond(const EngineCall& call, std::shared_ptr<ResponseWriter> writer) {
  Json body;
  if (const auto error = parse_json_body(call.http.body, body)) return writer->fail(*error);
  ChatRequest request;
  if (const auto error = read_chat_request(body, call.engine, call.model, call.options,
                                           call.http.key_digest, true, request))
    return writer->fail(*error);
  answer_chat<ChatAnswer>(call, writer, std::move(request), "call_");
}

}  // namespace

void add_chat_routes(Router& router, const ServedModel& served, const ApiOptions& options) {
  for (const char* path : {"/v1/chat/completions", "/chat/completions"})
    add_engine_route(router, path, true, served, options, respond);
}

}  // namespace invar::server
