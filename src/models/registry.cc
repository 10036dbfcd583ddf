// Which file knows which architecture. A new family is one more file and one more line here.
#include <algorithm>
#include <cmath>
#include <map>

#include "base/check.h"
#include "base/log.h"
#include "models/common_config.h"
#include "models/family.h"
#include "models/token_tables.h"

namespace invar {

extern const ModelFamily kLlamaFamily, kQwen2Family, kQwen3Family, kQwen3MoeFamily,
    kQwen3NextFamily, kQwen35Family, kQwen35MoeFamily, kGemma3Family, kNemotronHFamily;

namespace {

constexpr const ModelFamily* kFamilies[] = {
    &kLlamaFamily,  &kQwen2Family,     &kQwen3Family,  &kQwen3MoeFamily,  &kQwen3NextFamily,
    &kQwen35Family, &kQwen35MoeFamily, &kGemma3Family, &kNemotronHFamily,
};

struct Opened {
  const ModelFamily* family;
  ModelSource source;
  ModelPlan plan;
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

Result<Opened> open_source(const Checkpoint& checkpoint, const LoadOptions& options) {
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
      // Some wrappers have these outside.
      for (const char* key : {"eos_token_id", "tie_word_embeddings"})
        if (const Json* outer = config.find(key)) set_default(text, key, *outer);
      config = std::move(text);
    }
    Opened opened{family, ModelSource(checkpoint, std::move(config)), {}};
    opened.source.set_gguf_names(*family->gguf_names);
    auto plan = family->plan(opened.source, options);
    if (!plan) {
      // Errors of a tensor name their file already.
      if (plan.error().message.starts_with(checkpoint.path)) return plan.error();
      return with_context(checkpoint.path + (gguf ? ": metadata" : "/config.json"), plan.error());
    }
    opened.plan = *std::move(plan);
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
ModelInfo info_of(const Opened& opened) {
  const Checkpoint& checkpoint = opened.source.checkpoint();
  ModelInfo info = opened.plan.info;
  info.family = opened.family->name;
  append_ids(info.eos_ids, opened.source.config(), "eos_token_id");
  append_ids(info.eos_ids, checkpoint.generation_config, "eos_token_id");

  // A head of its own leaves the embedding to look-ups of single rows.
  const TensorInfo* const head = opened.source.find("lm_head");
  const TensorInfo* const unread = has_own_head(opened.source, opened.plan.tied)
                                       ? opened.source.find(opened.plan.embedding)
                                       : head;
  double active = 0, streamed = 0;
  std::map<std::string, size_t> bytes_by_format;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (!opened.source.is_wanted(tensor.name)) continue;
    const int64_t num_values = tensor.matrix.num_rows * tensor.matrix.num_cols;
    const size_t num_bytes = tensor.matrix.num_bytes();
    // A step of one token does not run the MTP head: drafts do.
    double share = info.num_experts > 0 && ModelSource::is_expert(tensor.name)
                       ? double(info.num_experts_per_tok) / info.num_experts
                       : 1.0;
    if (opened.source.part_of(tensor.name) != ModelSource::Part::kText) share = 0;
    info.num_parameters += num_values;
    info.packed_bytes += num_bytes;
    active += share * static_cast<double>(num_values);
    if (&tensor != unread) streamed += share * static_cast<double>(num_bytes);
    std::string name = format_name(tensor.matrix.format);
    if (tensor.matrix.format == WeightFormat::kMlxAffine)
      name += format(" %d-bit g%d", tensor.matrix.bits, tensor.matrix.group_size);
    bytes_by_format[name] += num_bytes;
  }
  info.num_active_parameters = std::llround(active);
  info.streamed_bytes_per_token = std::llround(streamed);
  const auto most =
      std::max_element(bytes_by_format.begin(), bytes_by_format.end(),
                       [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != bytes_by_format.end()) info.quantization = most->first;
  return info;
}

// What a text model leaves alone is said once; what nobody knows is a warning.
void report_unused(const Opened& opened) {
  const Checkpoint& checkpoint = opened.source.checkpoint();
  int num_vision = 0, num_audio = 0, num_mtp = 0;
  for (const TensorInfo& tensor : checkpoint.tensors()) {
    if (opened.source.is_wanted(tensor.name)) continue;
    const ModelSource::Part part = opened.source.part_of(tensor.name);
    num_vision += part == ModelSource::Part::kVision;
    num_audio += part == ModelSource::Part::kAudio;
    num_mtp += part == ModelSource::Part::kMtp;
  }
  std::string skipped;
  const auto add = [&](int count, const char* what) {
    if (count > 0) skipped += format("%s%d of %s", skipped.empty() ? "" : ", ", count, what);
  };
  add(num_vision, "vision");
  add(num_audio, "audio");
  add(num_mtp, "the MTP head");
  if (!skipped.empty())
    log(LogLevel::kInfo, "%s: tensors that are not loaded: %s", checkpoint.path.c_str(),
        skipped.c_str());
  const std::vector<std::string> unused = opened.source.unused_tensors();
  if (!unused.empty())
    log(LogLevel::kWarning, "%s: %zu tensors are not used by family %s: %s",
        checkpoint.path.c_str(), unused.size(), std::string(opened.family->name).c_str(),
        joined(unused, 5).c_str());
}

}  // namespace

Tensor Model::draft(ops::Context& /*ctx*/, const Batch& /*batch*/, Tensor /*hidden*/) const {
  INVAR_CHECK(false, "%s: no MTP head is loaded", info_.family.c_str());
}

Result<std::unique_ptr<Model>> load_model(const Checkpoint& checkpoint, Backend& backend,
                                          const ProgressFn& progress, PackedCache* cache,
                                          const LoadOptions& options) {
  INVAR_TRY(const Opened opened, open_source(checkpoint, options));
  Packer packer(opened.source, backend, progress, cache);
  INVAR_TRY(auto model, opened.plan.load(opened.source, packer, info_of(opened)));
  report_unused(opened);
  return model;
}

Result<ModelInfo> describe_model(const Checkpoint& checkpoint, const LoadOptions& options) {
  INVAR_TRY(const Opened opened, open_source(checkpoint, options));
  return info_of(opened);
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
