// A model looked at without loading its weights: what `info`, `plan` and `tokenize` work on.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "models/model.h"
#include "options.h"
#include "tokenizer/tokenizer.h"
#include "weights/checkpoint.h"

namespace invar::cli {

struct ModelFiles {
  std::unique_ptr<Checkpoint> checkpoint;
  ModelInfo info;
};
Result<ModelFiles> open_model_files(const std::string& model);

Result<std::unique_ptr<Backend>> open_backend(const EngineFlags& flags);
Result<BackendInfo> backend_info(const EngineFlags& flags);

// The config's and the tokenizer's end ids, ascending.
std::vector<int32_t> all_end_ids(const ModelInfo& info, const Tokenizer& tokenizer);

struct FormatShare {
  std::string format;
  int num_tensors = 0;
  uint64_t num_bytes = 0;
};
std::vector<FormatShare> format_shares(const Checkpoint& checkpoint);  // largest first

// What a chat template does with things it may not know, found out by rendering it.
struct TemplateAbilities {
  std::string error;  // it does not parse, or fails on one user message
  bool system = false, tools = false, thinking = false;
};
TemplateAbilities probe_template(const Checkpoint& checkpoint, const Tokenizer& tokenizer);

}  // namespace invar::cli
