// ModelSource: what a family file reads a checkpoint through. One view of both containers: a config
// with Hugging Face's keys and tensors under Hugging Face's names, each with its shape checked. A
// family says only which GGUF name stands for which module.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "backend/backend.h"
#include "base/json.h"
#include "base/result.h"
#include "weights/checkpoint.h"

namespace invar {

// {"self_attn.q_proj", "attn_q"}: module of a layer -> its stem behind "blk.N." in a GGUF file.
using GgufNames = std::vector<std::pair<std::string_view, std::string_view>>;

// The names that llama, qwen2 and qwen3 share.
const GgufNames& common_gguf_names();

class ModelSource {
 public:
  ModelSource(const Checkpoint& checkpoint, Json config);

  const Checkpoint& checkpoint() const { return checkpoint_; }
  bool is_gguf() const { return checkpoint_.container == Container::kGguf; }
  // GGUF metadata is translated to config.json's keys by models/gguf_config.cc; multimodal wrappers
  // are reduced to their text_config.
  const Json& config() const { return config_; }
  void set_gguf_names(const GgufNames& names) { gguf_names_ = &names; }

  // "model.layers.0.self_attn.q_proj" + ".weight" under its name in this checkpoint, also behind
  // the prefixes of multimodal wrappers. nullptr: not there.
  const TensorInfo* find(const std::string& module, std::string_view suffix = ".weight") const;

  // The tensor as a matrix of exactly this shape, or an error that names file, tensor, the expected
  // and the found shape.
  Result<MatrixView> matrix(const std::string& module, int64_t num_rows, int64_t num_cols) const;
  // A vector as fp32, plus `add` on each element (Gemma's norms are stored as w - 1).
  Result<std::vector<float>> vector(const std::string& module, std::string_view suffix,
                                    int64_t size, float add = 0) const;

  // The layer that a stored name belongs to, -1: none.
  static int layer_of(std::string_view stored_name);

  // Tensors that nothing asked for, for the warning that keeps them from being ignored silently.
  std::vector<std::string> unused_tensors() const;

 private:
  std::string stored_name(const std::string& module, std::string_view suffix,
                          std::string_view prefix) const;
  Error wrong_shape(const TensorInfo& tensor, const std::string& expected) const;

  const Checkpoint& checkpoint_;
  Json config_;
  const GgufNames* gguf_names_ = nullptr;
  mutable std::set<const TensorInfo*> used_;
};

// config.json's keys from GGUF metadata (specs/weights.md section 3.4).
Result<Json> config_from_gguf(const Checkpoint& checkpoint);

}  // namespace invar
