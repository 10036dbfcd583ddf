#include "model_files.h"

#include <algorithm>
#include <map>
#include <set>

#include "models_folder.h"
#include "tokenizer/chat_template.h"

namespace invar::cli {
namespace {

// Words no template has, so that finding one means that the template rendered it.
constexpr const char* kSystemWord = "zqsystemqz";
constexpr const char* kToolWord = "zqtoolqz";

Json message(const char* role, const char* content) {
  Json json = Json::object();
  json.set("role", role);
  json.set("content", content);
  return json;
}

std::string rendered(const ChatTemplate& chat_template, const TemplateInput& input) {
  Result<std::vector<TextSegment>> segments = chat_template.render(input);
  std::string text;
  if (segments)
    for (const TextSegment& segment : *segments) text += segment.text;
  return text;
}

}  // namespace

Result<ModelFiles> open_model_files(const std::string& model) {
  INVAR_TRY(const std::string path, resolve_model(model));
  ModelFiles files;
  INVAR_TRY(files.checkpoint, Checkpoint::open(path));
  INVAR_TRY(files.info, describe_model(*files.checkpoint));
  return files;
}

Result<std::unique_ptr<Backend>> open_backend(const EngineFlags& flags) {
  BackendOptions options;
  options.num_threads = static_cast<int>(flags.num_threads);
  options.isa = flags.cpu_isa;
  options.activation_bits = flags.activation_bits == "12" ? 12 : 8;
  options.switches = flags.cuda_switches;
  return make_backend(flags.backend, options);
}

Result<BackendInfo> backend_info(const EngineFlags& flags) {
  INVAR_TRY(const std::unique_ptr<Backend> backend, open_backend(flags));
  return backend->info();
}

std::vector<int32_t> all_end_ids(const ModelInfo& info, const Tokenizer& tokenizer) {
  std::set<int32_t> ids(info.eos_ids.begin(), info.eos_ids.end());
  ids.insert(tokenizer.end_ids.begin(), tokenizer.end_ids.end());
  return {ids.begin(), ids.end()};
}

std::vector<FormatShare> format_shares(const Checkpoint& checkpoint) {
  std::map<std::string, FormatShare> by_format;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    std::string name = format_name(tensor.matrix.format);
    if (tensor.matrix.format == WeightFormat::kMlxAffine)
      name += format(" %d bits", tensor.matrix.bits);
    FormatShare& share = by_format[name];
    share.format = name;
    ++share.num_tensors;
    share.num_bytes += tensor.matrix.num_bytes();
  }
  std::vector<FormatShare> shares;
  for (const auto& [name, share] : by_format) shares.push_back(share);
  std::sort(shares.begin(), shares.end(), [](const FormatShare& a, const FormatShare& b) {
    return a.num_bytes != b.num_bytes ? a.num_bytes > b.num_bytes : a.format < b.format;
  });
  return shares;
}

TemplateAbilities probe_template(const Checkpoint& checkpoint, const Tokenizer& tokenizer) {
  TemplateAbilities abilities;
  std::string source = checkpoint.chat_templates[0].second;
  for (const auto& [name, text] : checkpoint.chat_templates) {
    if (name == "default") source = text;
    abilities.tools |= name == "tool_use";
  }
  Result<ChatTemplate> chat_template = ChatTemplate::parse(source);
  if (!chat_template) {
    abilities.error = chat_template.error().message;
    return abilities;
  }
  const auto token = [&](int32_t id) {
    return id >= 0 ? std::string(tokenizer.token_text(id)) : std::string();
  };
  TemplateInput input;
  input.bos_token = token(tokenizer.bos_id);
  input.eos_token = token(tokenizer.eos_id);
  input.pad_token = token(tokenizer.pad_id);
  input.unk_token = token(tokenizer.unk_id);
  input.messages.push_back(message("user", "Hello"));
  if (const auto plain = chat_template->render(input); !plain) {
    abilities.error = plain.error().message;
    return abilities;
  }
  TemplateInput with_system = input;
  with_system.messages = Json::array();
  with_system.messages.push_back(message("system", kSystemWord));
  with_system.messages.push_back(message("user", "Hello"));
  abilities.system = rendered(*chat_template, with_system).find(kSystemWord) != std::string::npos;

  Json parameters = Json::object();
  parameters.set("type", "object");
  parameters.set("properties", Json::object());
  Json function = Json::object();
  function.set("name", kToolWord);
  function.set("description", "A tool.");
  function.set("parameters", std::move(parameters));
  Json tool = Json::object();
  tool.set("type", "function");
  tool.set("function", std::move(function));
  TemplateInput with_tools = input;
  with_tools.tools = Json::array();
  with_tools.tools.push_back(std::move(tool));
  abilities.tools |= rendered(*chat_template, with_tools).find(kToolWord) != std::string::npos;

  TemplateInput no_thinking = input, thinking = input;
  no_thinking.kwargs.set("enable_thinking", false);
  thinking.kwargs.set("enable_thinking", true);
  abilities.thinking = rendered(*chat_template, no_thinking) != rendered(*chat_template, thinking);
  return abilities;
}

}  // namespace invar::cli
