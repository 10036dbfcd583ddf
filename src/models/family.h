// ModelFamily: what a family file hands to registry.cc, which opens checkpoints and finds the
// family by name. A family reads its own config and loads its own model; models/packer.h and the
// layers of this folder are there to be shared.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "models/model.h"
#include "models/model_source.h"
#include "models/packer.h"

namespace invar {

// A checkpoint's config, checked and complete: all that is known without reading weights, and how
// to load them.
struct ModelPlan {
  ModelInfo info;     // sizes, kv_layers, recurrent_layers, experts, has_mtp
  bool tied = false;  // as CommonConfig
  std::string embedding = "model.embed_tokens";  // module name
  // `info` describes the model as far as config and file do; loading fills in the rest.
  std::function<Result<std::unique_ptr<Model>>(const ModelSource&, Packer&, ModelInfo)> load;
};

struct ModelFamily {
  std::string_view name;                        // as `invar info` prints it
  std::vector<std::string_view> architectures;  // config.json "architectures"
  std::vector<std::string_view> model_types;    // config.json "model_type"
  std::vector<std::string_view> gguf;           // general.architecture
  const GgufNames* gguf_names;
  // An error names the key. `options` says what to load beside the layers.
  Result<ModelPlan> (*plan)(ModelSource& source, const LoadOptions& options);
};

}  // namespace invar
