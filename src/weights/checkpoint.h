// Checkpoint: named tensors and metadata of a model on disk, whatever its container. Tensor names
// and metadata keys are the container's own; models/ knows what they mean.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/file.h"
#include "base/json.h"
#include "base/keyed_hash.h"
#include "base/result.h"
#include "tensor/quant.h"

namespace invar {

enum class Container { kGguf, kSafetensors };

// One tensor as stored. shape is in Hugging Face order ([out, in]; GGUF dims reversed, dims of 1
// kept). For an MLX quantized module X the entry "X.weight" has format kMlxAffine, its logical
// shape, and carries "X.scales" and "X.biases", which are not listed themselves.
struct TensorInfo {
  std::string name;
  std::vector<int64_t> shape;
  // matrix.num_rows = product of all dims but the last, num_cols = the last dim.
  MatrixView matrix;
};

class Checkpoint {
 public:
  // path: a .gguf file (any part of a split model), a .safetensors file with config.json beside it,
  // or a folder in Hugging Face or MLX layout, or a folder that holds exactly one GGUF model.
  // Errors name the file and the key or tensor, and are found within 2 s (specs/security.md).
  static Result<std::unique_ptr<Checkpoint>> open(const std::string& path);

  virtual ~Checkpoint() = default;

  Container container = Container::kGguf;
  std::string path;                // as given
  std::vector<std::string> files;  // all weight files
  std::vector<FileState> states;   // of `files`, when they were opened
  uint64_t total_file_bytes = 0;

  // GGUF: the key/value pairs, arrays as JSON arrays (except tokenizer arrays, see below).
  // Safetensors: config.json.
  Json metadata;
  // generation_config.json, or an object made of GGUF's general.sampling.*; null when there is
  // none.
  Json generation_config;

  // Chat template source by name ("default", "tool_use", ...), chosen by specs/chat.md's priority;
  // empty when the model has none. `chat_template_source`: "chat_template.jinja", "gguf", ...
  std::vector<std::pair<std::string, std::string>> chat_templates;
  std::string chat_template_source;

  // What the tokenizer is made from: GGUF tokenizer.ggml.* or tokenizer.json +
  // tokenizer_config.json.
  struct GgufVocabulary {
    std::string model;  // "gpt2", "llama"
    std::string pre;
    std::vector<std::string> tokens;
    std::vector<float> scores;
    std::vector<int32_t> token_types;
    std::vector<std::string> merges;
    Json keys;  // the scalar tokenizer.ggml.* keys, without that prefix
  };
  std::optional<GgufVocabulary> gguf_vocabulary;
  std::string tokenizer_json;  // path, empty when absent
  Json tokenizer_config;       // tokenizer_config.json or null

  const std::vector<TensorInfo>& tensors() const { return tensors_; }
  const TensorInfo* find(std::string_view name) const;

  // SHA-256 over the headers and a fixed sample of the data (cheap); identifies the checkpoint in
  // caches and replies (`model_sha` is its first 8 digits).
  std::string fingerprint;

  // Lets the kernel forget the pages of `matrix` once it is packed.
  virtual void drop_pages(const MatrixView& matrix) const = 0;

 protected:
  std::vector<TensorInfo> tensors_;
  std::unordered_map<std::string, size_t, KeyedHash, std::equal_to<>> index_;
};

}  // namespace invar
