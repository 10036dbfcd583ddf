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
// {"lm_head", "output"}, {"mtp.fc", "nextn.eh_proj"}: a whole name. Those of "mtp." stand in the
// block behind the layers.
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

  // Of a family with an MTP head: GGUF files have it in block `block`; wanted or not, what belongs
  // to it is told from other tensors.
  void set_mtp(int block, bool is_wanted) {
    mtp_block_ = block;
    wants_mtp_ = is_wanted;
  }
  // The blocks of a GGUF file of `block_count` that are layers of the model. Behind them stands the
  // MTP head's, which keys may announce or not, there or not: tensors decide.
  Result<int> blocks_before_mtp(int block_count) const;
  // "<architecture>.<key>" of a GGUF file's metadata; null: not there. An array with one value for
  // all layers counts as that value.
  const Json* gguf_key(std::string_view key) const;

  // "model.layers.0.self_attn.q_proj" + ".weight" under its name in this checkpoint, also behind
  // the prefixes of multimodal wrappers. nullptr: not there.
  const TensorInfo* find(const std::string& module, std::string_view suffix = ".weight") const;
  // The same without counting it as used.
  bool has(const std::string& module, std::string_view suffix = ".weight") const;

  // The tensor as a matrix of exactly this shape, or an error that names file, tensor, the expected
  // and the found shape.
  Result<MatrixView> matrix(const std::string& module, int64_t num_rows, int64_t num_cols) const;
  // A stack of matrices, [num_experts, num_rows, num_cols], one below the other.
  Result<MatrixView> stack(const std::string& module, std::string_view suffix,
                           const std::vector<int64_t>& shape) const;
  // A vector as fp32, plus `add` on each element (Gemma's norms are stored as w - 1).
  Result<std::vector<float>> vector(const std::string& module, std::string_view suffix,
                                    int64_t size, float add = 0) const;
  // All values of a tensor of this shape (dims of 1 do not count), in row-major order.
  Result<std::vector<float>> values(const std::string& module, std::string_view suffix,
                                    const std::vector<int64_t>& shape, float add = 0) const;

  // The layer that a stored name belongs to, -1: none.
  static int layer_of(std::string_view stored_name);

  // What a stored tensor is for.
  enum class Part { kText, kMtp, kVision, kAudio };
  Part part_of(std::string_view stored_name) const;
  // Whether the model is made of it: text, and the MTP head where that is asked for.
  bool is_wanted(std::string_view stored_name) const;
  // Whether it belongs to one of several experts, of which a token meets few.
  static bool is_expert(std::string_view stored_name);

  // Wanted tensors that nothing asked for, for the warning that keeps them from being ignored
  // silently.
  std::vector<std::string> unused_tensors() const;

 private:
  std::string stored_name(const std::string& module, std::string_view suffix,
                          std::string_view prefix) const;
  std::string gguf_name(const std::string& module) const;
  const TensorInfo* look_up(const std::string& module, std::string_view suffix) const;
  Result<const TensorInfo*> shaped(const std::string& module, std::string_view suffix,
                                   const std::vector<int64_t>& shape) const;

  const Checkpoint& checkpoint_;
  Json config_;
  const GgufNames* gguf_names_ = nullptr;
  int mtp_block_ = -1;
  bool wants_mtp_ = false;
  mutable std::set<const TensorInfo*> used_;
};

// What all layers share counts as one value: an array of equal values is the first of them. Null
// stays null.
const Json* uniform_value(const Json* value);

// config.json's keys from GGUF metadata (specs/weights.md section 3.4).
Result<Json> config_from_gguf(const Checkpoint& checkpoint);

}  // namespace invar
