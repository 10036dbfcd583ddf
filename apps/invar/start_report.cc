#include "start_report.h"

#include "base/log.h"
#include "engine/memory_plan.h"

namespace invar::cli {
namespace {

std::string list_of(const std::vector<std::string>& words) {
  std::string list;
  for (const std::string& word : words) list += (list.empty() ? "" : ", ") + word;
  return list;
}

void line(const char* what, const std::string& text) {
  log(LogLevel::kInfo, "%-9s %s", what, text.c_str());
}

std::string describe_window(const ModelDescription& model, std::string_view source) {
  std::string text = format("%lld positions, ", static_cast<long long>(model.context));
  const auto most = static_cast<long long>(model.max_position_embeddings);
  if (source == "auto")
    text += format("shrunk to what fits; the model's own window is %lld", most);
  else if (model.context < model.max_position_embeddings)
    text += format("as asked, below the model's own window of %lld", most);
  else
    text += "the model's own window";
  return text;
}

}  // namespace

void report_start(const ModelDescription& model, const StartFacts& facts) {
  std::vector<std::string> end_ids;
  for (const int32_t id : model.end_ids) end_ids.push_back(std::to_string(id));
  line("model", format("%s: %s, %s, %.1f million parameters, %d layers", model.path.c_str(),
                       model.family.c_str(), model.quantization.c_str(),
                       static_cast<double>(model.num_parameters) / 1e6, model.num_layers));
  line("device", format("%s: all %d layers; kernels %s (%s); %d threads, arithmetic %s",
                        model.backend.c_str(), model.num_layers, model.isa.c_str(),
                        model.isa_why.empty() ? "no other here" : model.isa_why.c_str(),
                        model.num_threads, model.arithmetic_id.c_str()));
  line("window", describe_window(model, facts.window_source) +
                     format("; %d sequences at once", facts.max_sequences));
  std::string memory = format("weights %s (%s), keys and values %s as %s",
                              readable_bytes(model.weight_bytes).c_str(), model.packing.c_str(),
                              readable_bytes(model.kv_bytes).c_str(), model.kv_type.c_str());
  if (model.state_bytes > 0)
    memory += format(
        ", states of recurrent layers %s (%d running, %d kept for later prompts)",
        readable_bytes(model.state_bytes).c_str(), facts.max_sequences,
        static_cast<int>(model.state_bytes / model.state_bytes_per_sequence) - facts.max_sequences);
  line("memory", memory);
  line("template", format("%s; stop ids %s",
                          model.chat_template_source.empty() ? "none: no chat"
                                                             : model.chat_template_source.c_str(),
                          list_of(end_ids).c_str()));
  line("drafter", "none");
  line("address", format("%s; %zu API keys", list_of(facts.addresses).c_str(), facts.num_keys));
  line("ready", format("in %.1f s", facts.took.count()));
}

}  // namespace invar::cli
