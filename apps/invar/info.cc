// `invar info`: what a model is, and what of it would run where. Reads headers, no weights.
#include "base/log.h"
#include "commands.h"
#include "engine/memory_plan.h"
#include "exit_codes.h"
#include "model_files.h"
#include "terminal.h"

namespace invar::cli {
namespace {

constexpr const char* kCommand = "info";

struct InfoFlags {
  std::string model;
  bool json = false;
  EngineFlags engine;
};

// What both outputs are made from.
struct Facts {
  ModelFiles files;
  std::unique_ptr<Tokenizer> tokenizer;
  std::string tokenizer_error;
  std::unique_ptr<Backend> backend;
  TemplateAbilities abilities;
  std::vector<FormatShare> shares;

  bool has_template() const {
    return tokenizer != nullptr && !files.checkpoint->chat_templates.empty();
  }
  uint64_t kv_bytes_per_position() const {
    return backend->kv_page_bytes(files.info.kv_layers) / kPagePositions;
  }
  int64_t num_attention_layers() const {
    return static_cast<int64_t>(files.info.kv_layers.size()) - files.info.num_mtp_layers;
  }
  // Of a sequence, whatever its length; 0: no recurrent layers, or a backend without them.
  uint64_t state_bytes() const { return state_slot_bytes(*backend, files.info.recurrent_layers); }
};

Json info_json(const Facts& facts) {
  const Checkpoint& checkpoint = *facts.files.checkpoint;
  const ModelInfo& info = facts.files.info;
  const BackendInfo& backend = facts.backend->info();
  const auto count = [](uint64_t value) { return static_cast<int64_t>(value); };
  Json formats = Json::array();
  for (const FormatShare& share : facts.shares) {
    Json entry = Json::object();
    entry.set("format", share.format);
    entry.set("tensors", share.num_tensors);
    entry.set("bytes", count(share.num_bytes));
    formats.push_back(std::move(entry));
  }
  Json tokenizer;
  Json end_ids = Json::array();
  if (facts.tokenizer != nullptr) {
    tokenizer = Json::object();
    tokenizer.set("model", facts.tokenizer->model_name());
    tokenizer.set("tokens", int64_t{facts.tokenizer->vocab_size()});
    tokenizer.set("bos_id", int64_t{facts.tokenizer->bos_id});
    tokenizer.set("adds_bos", facts.tokenizer->add_bos);
    for (const int32_t id : all_end_ids(info, *facts.tokenizer)) {
      Json entry = Json::object();
      entry.set("id", int64_t{id});
      entry.set("text", facts.tokenizer->token_text(id));
      end_ids.push_back(std::move(entry));
    }
  }
  Json chat_template;
  if (facts.has_template()) {
    chat_template = Json::object();
    chat_template.set("source", checkpoint.chat_template_source);
    chat_template.set("error",
                      facts.abilities.error.empty() ? Json() : Json(facts.abilities.error));
    chat_template.set("system", facts.abilities.system);
    chat_template.set("tools", facts.abilities.tools);
    chat_template.set("thinking", facts.abilities.thinking);
  }
  Json runs = Json::object();
  runs.set("backend", backend.name);
  runs.set("isa", backend.isa);
  runs.set("why", backend.why);
  runs.set("threads", backend.num_threads);
  runs.set("arithmetic_id", backend.arithmetic_id);

  Json json = Json::object();
  json.set("path", checkpoint.path);
  json.set("container", checkpoint.container == Container::kGguf ? "GGUF" : "safetensors");
  json.set("num_files", static_cast<int64_t>(checkpoint.files.size()));
  json.set("file_bytes", count(checkpoint.total_file_bytes));
  json.set("model_sha", checkpoint.fingerprint.substr(0, 8));
  json.set("family", info.family);
  json.set("quantization", info.quantization);
  json.set("formats", std::move(formats));
  json.set("num_parameters", info.num_parameters);
  json.set("num_active_parameters", info.num_active_parameters);
  json.set("num_layers", info.num_layers);
  json.set("num_attention_layers", facts.num_attention_layers());
  json.set("num_recurrent_layers", static_cast<int64_t>(info.recurrent_layers.size()));
  json.set("state_bytes_per_sequence", count(facts.state_bytes()));
  json.set("num_experts", info.num_experts);
  json.set("num_experts_per_tok", info.num_experts_per_tok);
  json.set("mtp_head", info.has_mtp);
  json.set("hidden_size", info.hidden_size);
  json.set("vocab_size", info.vocab_size);
  json.set("context", info.max_position_embeddings);
  json.set("weight_bytes", count(info.packed_bytes));
  json.set("kv_bytes_per_position", count(facts.kv_bytes_per_position()));
  json.set("streamed_bytes_per_token", info.streamed_bytes_per_token);
  json.set("tokenizer", std::move(tokenizer));
  json.set("end_ids", std::move(end_ids));
  json.set("chat_template", std::move(chat_template));
  json.set("runs_on", std::move(runs));
  return json;
}

void line(const char* label, const std::string& text) {
  print(format("%-15s", label) + for_stdout(text) + "\n");
}

std::string template_text(const Facts& facts) {
  if (!facts.has_template()) return "none: a base model, `invar run --raw` continues text";
  std::string text = facts.files.checkpoint->chat_template_source;
  if (!facts.abilities.error.empty()) return text + ", which fails: " + facts.abilities.error;
  text += facts.abilities.system ? "; system message" : "; no system message";
  text += facts.abilities.tools ? ", tools" : ", no tools";
  return text + (facts.abilities.thinking ? ", thinking can be switched" : "");
}

// "135 M", "34.7 G"
std::string parameters_text(int64_t count) {
  const auto number = static_cast<double>(count);
  return number < 9.9995e9 ? format("%.4g M", number / 1e6) : format("%.4g G", number / 1e9);
}

// What not every family has.
std::string layers_text(const Facts& facts) {
  const ModelInfo& info = facts.files.info;
  std::string text;
  const auto add = [&](const std::string& more) { text += (text.empty() ? "" : "; ") + more; };
  if (!info.recurrent_layers.empty()) {
    const auto attention = static_cast<long long>(facts.num_attention_layers());
    add(format("%lld %s with attention, %zu with a state", attention,
               attention == 1 ? "layer" : "layers", info.recurrent_layers.size()));
    if (facts.state_bytes() > 0) text += " (" + human_bytes(facts.state_bytes()) + " a sequence)";
  }
  if (info.num_experts > 0)
    add(format("%d experts, of which a token meets %d", info.num_experts,
               info.num_experts_per_tok));
  if (info.has_mtp) add("an MTP head");
  return text;
}

void print_info(const Facts& facts) {
  const Checkpoint& checkpoint = *facts.files.checkpoint;
  const ModelInfo& info = facts.files.info;
  const BackendInfo& backend = facts.backend->info();
  line("model", checkpoint.path);
  std::string active;
  if (info.num_experts > 0)
    active = " (" + parameters_text(info.num_active_parameters) + " a token)";
  line("family", format("%s, %s parameters%s, %d layers, hidden size %d", info.family.c_str(),
                        parameters_text(info.num_parameters).c_str(), active.c_str(),
                        info.num_layers, info.hidden_size));
  if (const std::string layers = layers_text(facts); !layers.empty()) line("", layers);
  line("files", format("%zu %s, %s, model_sha %s", checkpoint.files.size(),
                       checkpoint.container == Container::kGguf ? "GGUF" : "safetensors",
                       human_bytes(checkpoint.total_file_bytes).c_str(),
                       checkpoint.fingerprint.substr(0, 8).c_str()));
  uint64_t all_bytes = 0;
  for (const FormatShare& share : facts.shares) all_bytes += share.num_bytes;
  const char* label = "formats";
  for (const FormatShare& share : facts.shares) {
    line(label, format("%-8s %5.1f %%  %9s in %d tensors", share.format.c_str(),
                       100.0 * static_cast<double>(share.num_bytes) /
                           static_cast<double>(std::max<uint64_t>(all_bytes, 1)),
                       human_bytes(share.num_bytes).c_str(), share.num_tensors));
    label = "";
  }
  line("context", format("%lld positions, %s of keys and values each",
                         static_cast<long long>(info.max_position_embeddings),
                         human_bytes(facts.kv_bytes_per_position()).c_str()));
  std::string memory = human_bytes(info.packed_bytes) + " of weights";
  if (info.streamed_bytes_per_token > 0)
    memory += ", of which " + human_bytes(static_cast<uint64_t>(info.streamed_bytes_per_token)) +
              " are read per token";
  line("memory", memory);
  if (facts.tokenizer == nullptr) {
    line("tokenizer", "fails: " + facts.tokenizer_error);
  } else {
    line("tokenizer", format("%s, %d tokens%s", std::string(facts.tokenizer->model_name()).c_str(),
                             facts.tokenizer->vocab_size(),
                             facts.tokenizer->add_bos ? ", begins with BOS" : ""));
    std::string ids;
    for (const int32_t id : all_end_ids(info, *facts.tokenizer))
      ids += format("%s%d %s", ids.empty() ? "" : ", ", id,
                    std::string(facts.tokenizer->token_text(id)).c_str());
    line("ends with", ids.empty() ? "no end token" : ids);
  }
  line("chat template", template_text(facts));
  line("runs on", format("%s, %s, %d threads, arithmetic %s", backend.name.c_str(),
                         backend.isa.c_str(), backend.num_threads, backend.arithmetic_id.c_str()));
  if (!backend.why.empty()) line("", backend.why);
}

int info(const InfoFlags& flags) {
  Facts facts;
  Result<std::unique_ptr<Backend>> backend = open_backend(flags.engine);
  if (!backend)
    return fail(kCommand, backend.error().message, open_exit_code(backend.error(), flags.model));
  facts.backend = *std::move(backend);
  Result<ModelFiles> files = open_model_files(flags.model);
  if (!files) return fail(kCommand, files.error());
  facts.files = *std::move(files);
  facts.shares = format_shares(*facts.files.checkpoint);
  Result<std::unique_ptr<Tokenizer>> tokenizer =
      Tokenizer::from_checkpoint(*facts.files.checkpoint);
  if (tokenizer) {
    facts.tokenizer = *std::move(tokenizer);
  } else {
    facts.tokenizer_error = tokenizer.error().message;
  }
  if (facts.has_template())
    facts.abilities = probe_template(*facts.files.checkpoint, *facts.tokenizer);
  if (flags.json) {
    print(info_json(facts).dump(2) + "\n");
  } else {
    print_info(facts);
  }
  return kExitOk;
}

}  // namespace

std::function<int()> add_info(FlagSet& flags) {
  auto options = std::make_shared<InfoFlags>();
  add_model(flags, options->model);
  options->engine.add_backend(flags);
  flags.group("Output");
  flags.toggle("--json", options->json, "One JSON object.");
  flags.footer("Example:\n  invar info model.gguf");
  return [options] { return info(*options); };
}

}  // namespace invar::cli
