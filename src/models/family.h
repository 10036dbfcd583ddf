// ModelFamily: what a family file hands to registry.cc.
#pragma once

#include <string_view>
#include <vector>

#include "models/dense_decoder.h"
#include "models/model.h"
#include "models/model_source.h"

namespace invar {

struct ModelFamily {
  std::string_view name;                        // as `invar info` prints it
  std::vector<std::string_view> architectures;  // config.json "architectures"
  std::vector<std::string_view> model_types;    // config.json "model_type"
  std::vector<std::string_view> gguf;           // general.architecture
  const GgufNames* gguf_names;
  // Config checked and complete, or an error that names the key.
  Result<DenseConfig> (*parse)(const ModelSource& source);
};

}  // namespace invar
