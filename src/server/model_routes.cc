#include "server/model_routes.h"

#include <algorithm>
#include <ctime>

#include "base/json.h"

namespace invar::server {
namespace {

std::string iso_time(int64_t seconds) {
  const std::time_t time = seconds;
  std::tm utc{};
  ::gmtime_r(&time, &utc);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc);
  return text;
}

int64_t whole(uint64_t value) { return static_cast<int64_t>(value); }

Json meta_json(const ModelDescription& d, const ChatModel& chat, const SamplingParams& s,
               const char* context_source, int max_sequences) {
  Json meta = Json::object();
  meta.set("n_ctx", d.context);
  meta.set("n_ctx_train", d.max_position_embeddings);
  meta.set("n_ctx_source", context_source);
  meta.set("n_vocab", d.vocab_size);
  meta.set("n_embd", d.hidden_size);
  meta.set("n_layer", d.num_layers);
  meta.set("n_params", d.num_parameters);
  meta.set("size", whole(d.file_bytes));
  meta.set("family", d.family);
  meta.set("quantization", d.quantization);
  meta.set("file", file_name(d.path));
  meta.set("model_sha", d.model_sha);
  meta.set("arithmetic_id", d.arithmetic_id);
  meta.set("backend", d.backend);
  meta.set("isa", d.isa);
  Json device = Json::object();
  device.set("name", d.backend);
  device.set("layers", d.num_layers);
  device.set("why", d.isa_why);
  Json devices = Json::array();
  devices.push_back(std::move(device));
  meta.set("devices", std::move(devices));
  meta.set("kv_type", d.kv_type);
  if (d.state_bytes_per_sequence > 0) {
    meta.set("state_bytes", static_cast<int64_t>(d.state_bytes));
    meta.set("state_bytes_per_sequence", static_cast<int64_t>(d.state_bytes_per_sequence));
  }
  meta.set("block_size", d.page_positions);
  meta.set("num_blocks", d.num_pages);
  meta.set("max_sequences", max_sequences);
  meta.set("drafter", Json());
  meta.set("drafter_why", "this version has none");
  Json chat_template = Json();
  if (!d.chat_template_source.empty()) {
    Json efforts = Json::array();
    for (const std::string& effort : chat.efforts) efforts.push_back(effort);
    chat_template = Json::object();
    chat_template.set("source", file_name(d.chat_template_source));
    chat_template.set("tools", chat.tools.syntax.has_value());
    chat_template.set("reasoning", chat.has_reasoning || chat.knows_thinking);
    chat_template.set("efforts", std::move(efforts));
    chat_template.set("system_anywhere", chat.system_anywhere);
  }
  meta.set("chat_template", std::move(chat_template));
  Json end_ids = Json::array();
  for (const int32_t id : d.end_ids) end_ids.push_back(int64_t{id});
  meta.set("eos_ids", std::move(end_ids));
  Json sampling = Json::object();
  sampling.set("temperature", shown_number(s.temperature));
  sampling.set("top_p", shown_number(s.top_p));
  sampling.set("top_k", s.top_k);
  sampling.set("min_p", shown_number(s.min_p));
  sampling.set("repetition_penalty", shown_number(s.repetition_penalty));
  meta.set("default_sampling", std::move(sampling));
  return meta;
}

}  // namespace

std::string file_name(const std::string& path) {
  std::string trimmed = path;
  while (trimmed.size() > 1 && trimmed.ends_with('/')) trimmed.pop_back();
  return trimmed.substr(trimmed.rfind('/') + 1);
}

double shown_number(float value) { return std::stod(format("%.6g", static_cast<double>(value))); }

ServedModel::ServedModel(std::vector<std::string> names, std::string backend,
                         std::string arithmetic_id, std::string isa)
    : names_(std::move(names)),
      backend_(std::move(backend)),
      arithmetic_id_(std::move(arithmetic_id)),
      isa_(std::move(isa)),
      created_(static_cast<int64_t>(std::time(nullptr))) {}

void ServedModel::set_engine(Engine* engine, int max_sequences, const char* context_source,
                             const RequestDefaults& defaults) {
  default_sampling_ = default_params(engine->description(), defaults);
  context_source_ = context_source;
  created_ = static_cast<int64_t>(std::time(nullptr));
  max_sequences_ = max_sequences;
  chat_model_.of(*engine);  // probes now, not in the first request
  engine_ = engine;
}

Response ServedModel::version() const {
  Json json = Json::object();
  json.set("version", invar::version());
  json.set("arithmetic_id", arithmetic_id_);
  json.set("backend", backend_);
  json.set("isa", isa_);
  return json_response(json.dump());
}

std::string ServedModel::object(const std::string& name) const {
  const Engine* engine = engine_;
  Json json = Json::object();
  json.set("id", name);
  json.set("object", "model");
  json.set("type", "model");
  json.set("display_name", name);
  json.set("created", created_.load());
  json.set("created_at", iso_time(created_));
  json.set("owned_by", "invar");
  json.set("root", names_.front());
  json.set("parent", Json());
  if (engine != nullptr) {
    const int64_t context = engine->description().context;
    json.set("max_model_len", context);
    json.set("context_length", context);
    json.set("max_input_tokens", context - 1);
    json.set("max_tokens", context);
  }
  Json text = Json::array();
  text.push_back("text");
  Json architecture = Json::object();
  architecture.set("input_modalities", text);
  architecture.set("output_modalities", text);
  json.set("architecture", std::move(architecture));
  json.set("meta", engine == nullptr
                       ? Json()
                       : meta_json(engine->description(), chat_model(), default_sampling_,
                                   context_source_, max_sequences_));
  return json.dump();
}

Response ServedModel::list() const {
  std::string body = R"({"object":"list","data":[)";
  for (size_t i = 0; i < names_.size(); ++i) body += (i == 0 ? "" : ",") + object(names_[i]);
  body += R"(],"has_more":false,"first_id":)" + json_quote(names_.front()) + R"(,"last_id":)" +
          json_quote(names_.back()) + "}";
  return json_response(std::move(body));
}

Response ServedModel::one(const std::string& name, ApiStyle style,
                          const std::string& request_id) const {
  if (std::find(names_.begin(), names_.end(), name) != names_.end())
    return json_response(object(name));
  std::string known;
  for (const std::string& served : names_)
    known += (known.empty() ? "" : ", ") + quote_value(served);
  return error_response(
      style,
      api_error("model_not_found",
                "model " + quote_value(name) + " is not served here; served: " + known, "model"),
      request_id);
}

void add_model_routes(Router& router, const ServedModel& model) {
  const auto add = [&](const char* path, auto answer) {
    Route route;
    route.path = path;
    route.inline_handler = true;
    route.handler = [answer](const Request& request, std::shared_ptr<ResponseWriter> response) {
      response->send(answer(request));
    };
    router.add(std::move(route));
  };
  add("/version", [&model](const Request&) { return model.version(); });
  for (const char* path : {"/v1/models", "/models"})
    add(path, [&model](const Request&) { return model.list(); });
  for (const char* path : {"/v1/models/{id}", "/models/{id}"})
    add(path, [&model](const Request& request) {
      return model.one(request.path_id, request.style, request.request_id);
    });
}

}  // namespace invar::server
