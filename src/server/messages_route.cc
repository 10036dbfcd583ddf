#include "server/messages_route.h"

#include <algorithm>
#include <chrono>

#include "server/answer_chat.h"
#include "server/http/json_body.h"
#include "server/http/request_id.h"
#include "server/http/sse.h"
#include "server/message_content.h"
#include "server/messages_request.h"

namespace invar::server {
namespace {

// Why a reply ended, and the stop string if that was it.
struct StopReason {
  Json reason, sequence;
};

StopReason stop_reason_of(const ChatReply& reply) {
  switch (reply.ending(0)) {
    case ChatReply::Ending::kEnd:
      return {"end_turn", Json()};
    case ChatReply::Ending::kStop:  // there is no word for token ids
      if (reply.result(0).stop_text.empty()) return {"end_turn", Json()};
      return {"stop_sequence", reply.result(0).stop_text};
    case ChatReply::Ending::kToolCalls:
      return {"tool_use", Json()};
    case ChatReply::Ending::kLimit:
      return {"max_tokens", Json()};
    case ChatReply::Ending::kWindow:
      return {"model_context_window_exceeded", Json()};
  }
  return {};
}

// Tokens that came from the cache are not input tokens here. What the cache keeps is not told:
// agents would add it to the context.
Json usage_of_message(const Totals& totals) {
  Json details = Json::object();
  details.set("thinking_tokens", totals.num_reasoning_tokens);
  Json usage = Json::object();
  usage.set("input_tokens", totals.num_prompt_tokens - totals.num_cached_tokens);
  usage.set("cache_creation_input_tokens", 0);
  usage.set("cache_read_input_tokens", totals.num_cached_tokens);
  usage.set("output_tokens", totals.num_completion_tokens);
  usage.set("output_tokens_details", std::move(details));
  return usage;
}

// One request's answer, from its first token to its last.
class MessagesAnswer {
 public:
  MessagesAnswer(ChatReply& reply, const MessagesRequest& request, std::string request_id,
                 std::shared_ptr<ResponseWriter> writer)
      : reply_(reply),
        generation_(reply.request().generation),
        hides_thinking_(request.hides_thinking),
        request_id_(std::move(request_id)),
        writer_(std::move(writer)),
        id_(new_id("msg_")) {}

  const std::string& id() const { return id_; }

  void answer() {
    MessageContent content(reply_, hides_thinking_, nullptr);
    if (!read(content)) return;
    Json json = message(content.blocks(), stop_reason_of(reply_), reply_.totals());
    add_facts(json);
    writer_->send(json_response(json.dump()));
  }

  void stream() {
    if (!writer_->start_stream(
            sse_head(ApiStyle::kMessages, request_id_, ping_interval(generation_))))
      return;
    MessageContent content(reply_, hides_thinking_, [this](std::string_view type, Json fields) {
      return write(type, std::move(fields));
    });
    if (!read(content)) return;
    StopReason stop = stop_reason_of(reply_);
    Json delta = Json::object();
    delta.set("stop_reason", std::move(stop.reason));
    delta.set("stop_sequence", std::move(stop.sequence));
    Json fields = Json::object();
    fields.set("delta", std::move(delta));
    fields.set("usage", usage_of_message(reply_.totals()));
    add_facts(fields);
    if (write("message_delta", std::move(fields)) && write("message_stop", Json::object()))
      writer_->end_stream();
  }

 private:
  Json message(Json content, StopReason stop, const Totals& totals) const {
    Json usage = usage_of_message(totals);
    usage.set("service_tier", "standard");
    Json json = Json::object();
    json.set("id", id_);
    json.set("type", "message");
    json.set("role", "assistant");
    json.set("model", generation_.model);
    json.set("content", std::move(content));
    json.set("stop_reason", std::move(stop.reason));
    json.set("stop_sequence", std::move(stop.sequence));
    json.set("usage", std::move(usage));
    return json;
  }

  void add_facts(Json& json) const {
    json.set("timings", timings_json(reply_.totals()));
    json.set("invar", reply_.invar_facts());
  }

  // False: nobody listens, or the reply failed and that was said.
  bool read(MessageContent& content) {
    while (const std::optional<ChatReply::Event> event = reply_.next()) {
      // The prompt's cached part is known from its first step on.
      if (generation_.stream && !event->ended && !start()) return false;
      for (const ChatReply::Part& part : event->parts)
        if (!content.add(part)) return false;
      if (!event->ended) continue;
      if (const auto error = reply_.error(0)) return writer_->fail(*error), false;
    }
    if (generation_.stream && !start()) return false;
    return content.finish(reply_.was_cut(0));
  }

  // ---- Stream

  bool write(std::string_view type, Json fields) {
    Json event = Json::object();
    event.set("type", type);
    for (auto& [name, value] : fields.members()) event.set(name, value);
    if (generation_.timings_per_token && type == "content_block_delta")
      event.set("timings", timings_json(reply_.totals()));
    return writer_->write_event(sse_event(type, event.dump()));
  }

  // The opening event, once.
  bool start() {
    if (std::exchange(started_, true)) return true;
    Totals before = reply_.totals();
    before.num_completion_tokens = before.num_reasoning_tokens = 0;
    Json fields = Json::object();
    fields.set("message", message(Json::array(), {}, before));
    return write("message_start", std::move(fields));
  }

  ChatReply& reply_;
  const GenerationFields& generation_;
  const bool hides_thinking_;
  const std::string request_id_;
  const std::shared_ptr<ResponseWriter> writer_;
  const std::string id_;
  bool started_ = false;  // the opening event was sent
};

std::optional<ApiError> read_request(const EngineCall& call, bool for_generation,
                                     MessagesRequest& request, ChatRequest& chat) {
  Json body;
  if (auto error = parse_json_body(call.http.body, body)) return error;
  if (auto error = read_messages_body(body, call.options, for_generation, request)) return error;
  // Agents send one large limit for all models: it is lowered to what is left of the window, and
  // the stop reason tells.
  ApiOptions options = call.options;
  options.clamp_max_tokens = true;
  if (const auto error = read_chat_request(request.chat.finish(), call.engine, call.model, options,
                                           call.http.key_digest, for_generation, chat))
    return in_messages_words(request.chat.in_callers_terms(*error));
  add_warnings(request.chat, request.warnings, chat.generation.warnings);
  if (request.only_prompt) {
    chat.generation.max_tokens = chat.generation.request.max_tokens = 0;
    chat.generation.ends_at_window = false;
  }
  chat.generation.request.report_progress = chat.generation.stream;
  return std::nullopt;
}

void respond(const EngineCall& call, const std::shared_ptr<ResponseWriter>& writer) {
  MessagesRequest request;
  ChatRequest chat;
  if (const auto error = read_request(call, true, request, chat)) return writer->fail(*error);
  answer_chat<MessagesAnswer>(call, writer, std::move(chat), "toolu_", request);
}

void count_tokens(const EngineCall& call, const std::shared_ptr<ResponseWriter>& writer) {
  MessagesRequest request;
  ChatRequest chat;
  if (const auto error = read_request(call, false, request, chat)) return writer->fail(*error);
  Json json = Json::object();
  json.set("input_tokens", static_cast<int64_t>(chat.prompt_ids.size()));
  writer->send(json_response(json.dump()));
}

}  // namespace

void add_messages_routes(Router& router, const ServedModel& served, const ApiOptions& options) {
  add_engine_route(router, "/v1/messages", true, served, options, respond);
  add_engine_route(router, "/v1/messages/count_tokens", false, served, options, count_tokens);
}

}  // namespace invar::server
