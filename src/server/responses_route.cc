#include "server/responses_route.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <mutex>

#include "server/answer_chat.h"
#include "server/http/json_body.h"
#include "server/http/request_id.h"
#include "server/http/sse.h"
#include "server/response_object.h"
#include "server/response_output.h"
#include "server/responses_request.h"

namespace invar::server {
namespace {

// What the event that ends a stream from outside (the client is slow, the server drains) says. It
// is made on another thread, so this keeps text and no documents, which threads must not share.
class FailedEvent {
 public:
  explicit FailedEvent(const Json& response) : response_(response.dump()) {}

  void add_item(const Json& item) {
    std::string text = item.dump();
    const std::lock_guard lock(mutex_);
    items_ += (items_.empty() ? "" : ",") + std::move(text);
  }
  std::string make(const ApiError& error, int64_t number) {
    const std::lock_guard lock(mutex_);
    constexpr JsonLimits kOwn{.max_depth = 1000, .max_nodes = SIZE_MAX};
    Json response = *Json::parse(response_, kOwn);
    fail_response(response, error, *Json::parse("[" + items_ + "]", kOwn));
    Json event = Json::object();
    event.set("type", "response.failed");
    event.set("sequence_number", number);
    event.set("response", std::move(response));
    return sse_event("response.failed", event.dump());
  }

 private:
  std::mutex mutex_;
  const std::string response_;
  std::string items_;
};

// One request's answer, from its first token to its last.
class ResponsesAnswer {
 public:
  ResponsesAnswer(ChatReply& reply, const ResponsesRequest& request, std::string request_id,
                  std::shared_ptr<ResponseWriter> writer)
      : reply_(reply),
        generation_(reply.request().generation),
        request_(request),
        request_id_(std::move(request_id)),
        writer_(std::move(writer)),
        response_(new_response(request, reply.request(), new_id("resp_"),
                               static_cast<int64_t>(std::time(nullptr)))) {}

  std::string id() const { return response_.find("id")->as_string(); }

  void answer() {
    ResponseOutput output(reply_, request_.tools.tools, nullptr);
    if (read(output)) writer_->send(json_response(response_.dump()));
  }

  void stream() {
    failed_ = std::make_shared<FailedEvent>(response_);
    StreamHead head = sse_head(ApiStyle::kOpenAi, request_id_, ping_interval(generation_));
    head.error_event = [failed = failed_](const ApiError& error, int64_t num_events) {
      return failed->make(error, num_events);
    };
    if (!writer_->start_stream(std::move(head))) return;
    if (!write_response("response.created") || !write_response("response.in_progress")) return;
    ResponseOutput output(reply_, request_.tools.tools, [this](std::string_view type, Json fields) {
      return write(type, std::move(fields));
    });
    if (!read(output)) return;
    if (write_response(reply_.was_cut(0) ? "response.incomplete" : "response.completed"))
      writer_->end_stream();
  }

 private:
  // False: nobody listens, or the reply failed and that was said.
  bool read(ResponseOutput& output) {
    while (const std::optional<ChatReply::Event> event = reply_.next()) {
      for (const ChatReply::Part& part : event->parts)
        if (!output.add(part)) return false;
      if (!event->ended) continue;
      if (const auto error = reply_.error(0)) return writer_->fail(*error), false;
    }
    if (!output.finish(reply_.was_cut(0))) return false;
    end_response(response_, reply_, output.items());
    return true;
  }

  // ---- Stream

  bool write(std::string_view type, Json fields) {
    Json event = Json::object();
    event.set("type", type);
    event.set("sequence_number", num_events_++);
    for (auto& [name, value] : fields.members()) event.set(name, value);
    if (generation_.timings_per_token && type.ends_with(".delta"))
      event.set("timings", timings_json(reply_.totals()));
    if (type == "response.output_item.done") failed_->add_item(*fields.find("item"));
    return writer_->write_event(sse_event(type, event.dump()));
  }

  bool write_response(std::string_view type) {
    Json fields = Json::object();
    fields.set("response", response_);
    return write(type, std::move(fields));
  }

  ChatReply& reply_;
  const GenerationFields& generation_;
  const ResponsesRequest& request_;
  const std::string request_id_;
  const std::shared_ptr<ResponseWriter> writer_;
  Json response_;
  std::shared_ptr<FailedEvent> failed_;  // of a stream
  int64_t num_events_ = 0;
};

std::optional<ApiError> read_request(const EngineCall& call, bool for_generation,
                                     ResponsesRequest& request, ChatRequest& chat) {
  Json body;
  if (auto error = parse_json_body(call.http.body, body)) return error;
  if (auto error = read_responses_body(body, call.options, request)) return error;
  if (const auto error =
          read_chat_request(request.chat.finish(), call.engine, call.model, call.options,
                            call.http.key_digest, for_generation, chat))
    return request.chat.in_callers_terms(*error);
  add_warnings(request.chat, request.warnings, chat.generation.warnings);
  return std::nullopt;
}

void respond(const EngineCall& call, const std::shared_ptr<ResponseWriter>& writer) {
  ResponsesRequest request;
  ChatRequest chat;
  if (const auto error = read_request(call, true, request, chat)) return writer->fail(*error);
  answer_chat<ResponsesAnswer>(call, writer, std::move(chat), "call_", request);
}

void count_tokens(const EngineCall& call, const std::shared_ptr<ResponseWriter>& writer) {
  ResponsesRequest request;
  ChatRequest chat;
  if (const auto error = read_request(call, false, request, chat)) return writer->fail(*error);
  writer->send(json_response(input_tokens_json(chat.prompt_ids).dump()));
}

}  // namespace

void add_responses_routes(Router& router, const ServedModel& served, const ApiOptions& options) {
  add_engine_route(router, "/v1/responses", true, served, options, respond);
  add_engine_route(router, "/v1/responses/input_tokens", false, served, options, count_tokens);
}

}  // namespace invar::server
