#include "server/chat_model.h"

#include <optional>

#include "base/json.h"

namespace invar::server {
namespace {

constexpr const char* kMarker = "invar-probe-marker";

// The prompt of these messages (pairs of role and content), if the template takes them.
std::optional<std::string> render(const Engine& engine, const std::vector<ChatMessage>& messages,
                                  const Json& kwargs = Json::object()) {
  GenerationRequest request;
  request.messages = messages;
  if (!kwargs.members().empty()) request.template_kwargs_json = kwargs.dump();
  Result<std::string> text = engine.apply_chat_template(request);
  if (!text) return std::nullopt;
  return *std::move(text);
}

Json one_kwarg(const char* name, Json value) {
  Json kwargs = Json::object();
  kwargs.set(name, std::move(value));
  return kwargs;
}

void probe_roles(const Engine& engine, ChatModel& model) {
  const auto in_place =
      render(engine, {{"user", "a"}, {"assistant", "b"}, {"system", kMarker}, {"user", "c"}});
  model.system_anywhere = in_place && in_place->find(kMarker) != std::string::npos;
  model.same_role_twice = render(engine, {{"user", "a"}, {"user", "b"}}).has_value() ||
                          !render(engine, {{"user", "a"}}).has_value();
}

void probe_thinking(const Engine& engine, ChatModel& model) {
  const std::vector<ChatMessage> messages = {{"user", "a"}};
  const auto plain = render(engine, messages);
  const auto on = render(engine, messages, one_kwarg("enable_thinking", true));
  const auto off = render(engine, messages, one_kwarg("enable_thinking", false));
  model.knows_thinking = on != off || on != plain;
  for (const std::string& effort : all_efforts()) {
    if (effort == "none") continue;
    const auto text = render(engine, messages, one_kwarg("reasoning_effort", effort));
    if (text != plain) model.knows_effort = true;
    if (text) model.efforts.push_back(effort);
  }
  if (!model.knows_effort) model.efforts.clear();
}

}  // namespace

const std::vector<std::string>& all_efforts() {
  static const std::vector<std::string> kAll = {"none", "minimal", "low", "medium",
                                                "high", "xhigh",   "max"};
  return kAll;
}

const ChatModel& ChatModel::Once::of(const Engine& engine) {
  std::call_once(once_, [&] {
    model_.tools = probe_tool_support(engine);
    const Result<std::vector<int32_t>> ids = engine.tokenize("<think>", true, false);
    model_.has_reasoning = ids.ok() && ids->size() == 1;
    probe_roles(engine, model_);
    probe_thinking(engine, model_);
  });
  return model_;
}

}  // namespace invar::server
