#include "server/props_routes.h"

#include "base/json.h"

namespace invar::server {
namespace {

Response loading(const Request& request) {
  ApiError error = api_error("model_loading", "model is loading");
  error.retry_after_ms = 5000;
  return error_response(request.style, error, request.request_id);
}

Response props(const ServedModel& model) {
  const ModelDescription& d = model.engine()->description();
  Json params = Json::object();
  const SamplingParams& s = model.default_sampling();
  params.set("temperature", shown_number(s.temperature));
  params.set("top_p", shown_number(s.top_p));
  params.set("top_k", s.top_k);
  params.set("min_p", shown_number(s.min_p));
  Json settings = Json::object();
  settings.set("n_ctx", d.context);
  settings.set("params", std::move(params));
  Json modalities = Json::object();
  modalities.set("vision", false);
  modalities.set("audio", false);
  Json json = Json::object();
  json.set("default_generation_settings", std::move(settings));
  json.set("total_slots", model.max_sequences());
  json.set("model_alias", model.names().front());
  json.set("model_path", file_name(d.path));
  json.set("chat_template", d.chat_template);
  json.set("bos_token", d.bos_token);
  json.set("eos_token", d.eos_token);
  json.set("modalities", std::move(modalities));
  json.set("build_info", std::string("invar-") + version());
  json.set("is_sleeping", false);
  return json_response(json.dump());
}

// One entry for each sequence that may run. Which request stands where says nothing.
Response slots(const ServedModel& model, const RequestRegistry& requests, const Request& request) {
  const std::vector<RegisteredChoice> running = requests.running_choices();
  const size_t num_slots = static_cast<size_t>(model.max_sequences());
  if (running.size() >= num_slots && request.query.find("fail_on_no_slot=1") != std::string::npos)
    return error_response(request.style, api_error("no_slot", "every slot is processing"),
                          request.request_id);
  Json list = Json::array();
  for (size_t i = 0; i < num_slots; ++i) {
    const bool is_processing = i < running.size();
    Json slot = Json::object();
    slot.set("id", static_cast<int64_t>(i));
    slot.set("id_task", is_processing ? running[i].number : -1);
    slot.set("n_ctx", model.engine()->description().context);
    slot.set("speculative", false);
    slot.set("is_processing", is_processing);
    slot.set("n_decoded", is_processing ? running[i].num_tokens : 0);
    list.push_back(std::move(slot));
  }
  return json_response(list.dump());
}

}  // namespace

void add_props_routes(Router& router, const ServedModel& model, const RequestRegistry& requests,
                      bool with_slots) {
  const auto add = [&](const char* path, auto answer) {
    Route route;
    route.path = path;
    route.inline_handler = true;
    route.handler = [&model, answer](const Request& request,
                                     std::shared_ptr<ResponseWriter> writer) {
      writer->send(model.engine() == nullptr ? loading(request) : answer(request));
    };
    router.add(std::move(route));
  };
  add("/props", [&model](const Request&) { return props(model); });
  if (with_slots)
    add("/slots",
        [&model, &requests](const Request& request) { return slots(model, requests, request); });
}

}  // namespace invar::server
