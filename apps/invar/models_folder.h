// The folder that `invar pull` fills and `invar list` shows, and how a name becomes a path.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"

namespace invar::cli {

struct ListedModel {
  std::string name;    // what commands take: file name without .gguf, or folder name
  std::string path;    // what the engine opens; the first part of a split file
  std::string format;  // "GGUF", "safetensors"
  uint64_t num_bytes = 0;
  int64_t modified = 0;  // seconds since 1970
};

// $INVAR_MODELS, else $XDG_CACHE_HOME/invar/models, else ~/.cache/invar/models.
std::string models_folder();

// Sorted by name. Unfinished downloads (.part) are never among them.
std::vector<ListedModel> list_models();

// A path that exists, or a name out of list_models(). kNotFound says what to do next.
Result<std::string> resolve_model(const std::string& model);

// Last component of a path, for messages.
std::string model_label(const std::string& path);

bool is_unfinished(const std::string& path);  // an unfinished download's name

}  // namespace invar::cli
