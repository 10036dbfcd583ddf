// Which file knows which architecture. A new family is one more file and one more line here.
#include <algorithm>
#include <map>

#include "base/log.h"
#include "models/family.h"

namespace invar {

extern const ModelFamily kLlamaFamily, kQwen2Family, kQwen3Family, kGemma3Family;

namespace {

constexpr const ModelFamily* kFamilies[] = {
    &kLlamaFamily,
    &kQwen2Family,
    &kQwen3Family,
    &kGemma3Family,
};

struct Opened {
  const ModelFamily* family;
  ModelSource source;
};

bool contains(const std::vector<std::string_view>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

std::string joined(const std::vector<std::string>& names, size_t most) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < most; ++i) text += (i == 0 ? "" : ", ") + names[i];
  if (names.size() > most) text += ", ...";
  return text;
}

// config.json's first architecture, else its model_type.
std::string architecture_of(const Json& config) {
  if (const Json* list = config.find("architectures");
      list != nullptr && list->is_array() && !list->items().empty() && list->items()[0].is_string())
    return list->items()[0].as_string();
  const Json* type = config.find("model_type");
  return type != nullptr && type->is_string() ? type->as_string() : "";
}

Result<Opened> open_source(const Checkpoint& checkpoint) {
  const bool gguf = checkpoint.container == Container::kGguf;
  std::string architecture;
  Json config;
  if (gguf) {
    auto translated = config_from_gguf(checkpoint);
    if (!translated) return with_context(checkpoint.path, translated.error());
    config = *std::move(translated);
    architecture = config.find("gguf_architecture")->as_string();
  } else {
    config = checkpoint.metadata;
    architecture = architecture_of(config);
  }
  for (const ModelFamily* family : kFamilies) {
    if (!contains(gguf ? family->gguf : family->architectures, architecture) &&
        (gguf || !contains(family->model_types, architecture)))
      continue;
    // A multimodal wrapper keeps the text model's config inside.
    if (const Json* found = config.find("text_config"); found != nullptr && found->is_object()) {
      Json text = *found;
      const Json* eos = config.find("eos_token_id");  // stands outside in Gemma 3's
      if (eos != nullptr && text.find("eos_token_id") == nullptr) text.set("eos_token_id", *eos);
      config = std::move(text);
    }
    Opened opened{family, ModelSource(checkpoint, std::move(config))};
    opened.source.set_gguf_names(*family->gguf_names);
    return opened;
  }
  return unsupported("%s: architecture '%s' is not supported; known: %s", checkpoint.path.c_str(),
                     architecture.c_str(), joined(known_architectures(), 100).c_str());
}

// Token ids of a key that is an integer or a list of them.
void append_ids(std::vector<int32_t>& ids, const Json& json, const char* key) {
  const Json* value = json.find(key);
  if (value == nullptr) return;
  const auto add = [&](const Json& id) {
    if (id.is_int() && id.as_int() >= 0 && id.as_int() < INT32_MAX &&
        std::find(ids.begin(), ids.end(), id.as_int()) == ids.end())
      ids.push_back(static_cast<int32_t>(id.as_int()));
  };
  if (value->is_array())
    for (const Json& id : value->items()) add(id);
  else
    add(*value);
}

// Everything about a model that needs no packing.
ModelInfo info_of(const Opened& opened, const DenseConfig& config) {
  const Checkpoint& checkpoint = opened.source.checkpoint();
  ModelInfo info;
  info.family = opened.family->name;
  info.num_layers = config.num_layers;
  info.hidden_size = config.hidden_size;
  info.vocab_size = config.vocab_size;
  info.max_position_embeddings = config.max_position_embeddings;
  for (int i = 0; i < config.num_layers; ++i)
    info.kv_layers.push_back({config.num_kv_heads, config.head_dim});
  append_ids(info.eos_ids, opened.source.config(), "eos_token_id");
  append_ids(info.eos_ids, checkpoint.generation_config, "eos_token_id");

  // A head of its own leaves the embedding to look-ups of single rows.
  const TensorInfo* const head = opened.source.find("lm_head");
  const TensorInfo* const unread = head != nullptr && (opened.source.is_gguf() || !config.tied)
                                       ? opened.source.find("model.embed_tokens")
                                       : head;
  std::map<std::string, size_t> bytes_by_format;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    info.num_parameters += tensor.matrix.num_rows * tensor.matrix.num_cols;
    info.packed_bytes += tensor.matrix.num_bytes();
    if (&tensor != unread) info.streamed_bytes_per_token += tensor.matrix.num_bytes();
    std::string name = format_name(tensor.matrix.format);
    if (tensor.matrix.format == WeightFormat::kMlxAffine)
      name += format(" %d-bit g%d", tensor.matrix.bits, tensor.matrix.group_size);
    bytes_by_format[name] += tensor.matrix.num_bytes();
  }
  const auto most =
      std::max_element(bytes_by_format.begin(), bytes_by_format.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != bytes_by_format.end()) info.quantization = most->first;
  return info;
}

Result<DenseConfig> parse_config(const Opened& opened) {
  auto config = opened.family->parse(opened.source);
  if (config) return config;
  // Errors of a tensor name their file already.
  const std::string& path = opened.source.checkpoint().path;
  if (config.error().message.starts_with(path)) return config.error();
  return with_context(opened.source.is_gguf() ? path + ": metadata" : path + "/config.json",
                      config.error());
}

}  // namespace

Result<std::unique_ptr<Model>> load_model(const Checkpoint& checkpoint, Backend& backend,
                                          const ProgressFn& progress, PackedCache* cache) {
  INVAR_TRY(const Opened opened, open_source(checkpoint));
  INVAR_TRY(const DenseConfig config, parse_config(opened));
  INVAR_TRY(auto model,
            load_dense(config, opened.source, backend, info_of(opened, config), progress, cache));
  const std::vector<std::string> unused = opened.source.unused_tensors();
  if (!unused.empty())
    log(LogLevel::kWarning, "%s: %zu tensors are not used by family %s: %s",
        checkpoint.path.c_str(), unused.size(), std::string(opened.family->name).c_str(),
        joined(unused, 5).c_str());
  return model;
}

Result<ModelInfo> describe_model(const Checkpoint& checkpoint) {
  INVAR_TRY(const Opened opened, open_source(checkpoint));
  INVAR_TRY(const DenseConfig config, parse_config(opened));
  return info_of(opened, config);
}

std::vector<std::string> known_architectures() {
  std::vector<std::string> names;
  for (const ModelFamily* family : kFamilies) {
    for (const auto& name : family->architectures) names.emplace_back(name);
    for (const auto& name : family->gguf) names.push_back(std::string(name) + " (GGUF)");
  }
  return names;
}

}  // namespace invar
