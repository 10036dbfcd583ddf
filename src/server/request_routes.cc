#include "server/request_routes.h"

#include "base/json.h"

namespace invar::server {
namespace {

// Milliseconds as people read them.
double rounded(double ms) { return static_cast<double>(static_cast<int64_t>(ms * 10 + 0.5)) / 10; }

bool is_waiting(RequestState state) {
  return state == RequestState::kQueued || state == RequestState::kPreempted;
}

Json request_json(const ListedRequest& request) {
  const RequestFacts& facts = request.facts;
  const RequestStatus& status = request.status;
  Json json = Json::object();
  json.set("id", facts.id);
  json.set("request_id", facts.request_id);
  json.set("object", "request");
  json.set("endpoint", facts.endpoint);
  json.set("model", facts.model);
  json.set("created", facts.created);
  json.set("state", request_state_name(status.state));
  json.set("stream", facts.stream);
  json.set("n", facts.num_choices);
  json.set("prompt_tokens", status.num_prompt_tokens);
  json.set("cached_tokens", status.num_cached_tokens);
  json.set("prefilled_tokens", status.num_prefilled_tokens);
  json.set("completion_tokens", status.num_completion_tokens);
  json.set("max_tokens", facts.max_tokens);
  json.set("queue_ms", rounded(status.queue_ms));
  json.set(
      "age_ms",
      rounded(std::chrono::duration<double, std::milli>(Clock::now() - facts.received).count()));
  json.set("kv_blocks", status.num_kv_pages);
  json.set("preempted", status.num_preemptions);
  return json;
}

Response unknown_request(const Request& request) {
  return error_response(
      request.style,
      api_error("request_not_found",
                "no request " + quote_value(request.path_id) + " of this key runs", "id"),
      request.request_id);
}

}  // namespace

void add_request_routes(Router& router, RequestRegistry& registry) {
  Route list;
  list.path = "/v1/requests";
  list.inline_handler = true;
  list.handler = [&registry](const Request& request, std::shared_ptr<ResponseWriter> writer) {
    Json data = Json::array();
    int num_waiting = 0, num_all = 0;
    for (const ListedRequest& one : registry.list(request.key_digest)) {
      ++num_all;
      if (is_waiting(one.status.state)) ++num_waiting;
      data.push_back(request_json(one));
    }
    Json json = Json::object();
    json.set("object", "list");
    json.set("data", std::move(data));
    json.set("running", num_all - num_waiting);
    json.set("waiting", num_waiting);
    writer->send(json_response(json.dump()));
  };
  router.add(std::move(list));

  Route one;
  one.path = "/v1/requests/{id}";
  one.inline_handler = true;
  one.handler = [&registry](const Request& request, std::shared_ptr<ResponseWriter> writer) {
    const auto found = registry.find(request.key_digest, request.path_id);
    writer->send(found ? json_response(request_json(*found).dump()) : unknown_request(request));
  };
  router.add(std::move(one));

  Route cancel;
  cancel.method = "DELETE";
  cancel.path = "/v1/requests/{id}";
  cancel.handler = [&registry](const Request& request, std::shared_ptr<ResponseWriter> writer) {
    const auto cancelled = registry.cancel(request.key_digest, request.path_id);
    if (!cancelled) return writer->send(unknown_request(request));
    Json json = Json::object();
    json.set("id", cancelled->facts.id);
    json.set("object", "request.cancelled");
    json.set("cancelled", true);
    json.set("state", request_state_name(cancelled->status.state));
    json.set("completion_tokens", cancelled->status.num_completion_tokens);
    writer->send(json_response(json.dump()));
  };
  router.add(std::move(cancel));
}

}  // namespace invar::server
