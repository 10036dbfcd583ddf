// Model: the layers of one checkpoint over a backend. A family is one file in this folder and one
// line in registry.cc; nobody else knows its config keys and weight names.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "backend/recurrent_ops.h"
#include "base/result.h"
#include "ops/ops.h"
#include "weights/checkpoint.h"

namespace invar {

struct ModelInfo {
  std::string family;        // "llama"
  std::string quantization;  // dominant weight format by bytes, "Q4_1"
  int64_t num_parameters = 0;
  int num_layers = 0;
  int hidden_size = 0;
  int vocab_size = 0;
  int64_t max_position_embeddings = 0;                // the model's full window
  std::vector<KvLayerShape> kv_layers;                // of the layers with attention
  std::vector<RecurrentLayerShape> recurrent_layers;  // none: no StateCache is needed
  std::vector<int32_t> eos_ids;  // of config and generation config; the tokenizer adds its own
  size_t packed_bytes = 0;       // weights in memory
  int64_t streamed_bytes_per_token = 0;  // weight bytes that one decode step reads

  // Sparse mixtures: of num_experts a token meets num_experts_per_tok. 0: there are none.
  int num_experts = 0;
  int num_experts_per_tok = 0;
  int64_t num_active_parameters = 0;  // that a token meets

  // A head that predicts the token after next. Loaded (LoadOptions::mtp), its layers are the last
  // num_mtp_layers of kv_layers, and draft() runs it.
  bool has_mtp = false;
  int num_mtp_layers = 0;
};

// What a model may say of a logit row beside its logits.
struct RowOutcome {
  // Logits of the tokens behind the one that the row gives, [num_tokens, vocab_size]: several
  // tokens in one step. Valid as long as the row's.
  Tensor further;
  bool is_forced = false;      // said whatever a constraint asks for, now and from now on
  std::optional<Error> fault;  // ends the row's sequence; those beside it go on
};

class Model {
 public:
  virtual ~Model() = default;
  const ModelInfo& info() const { return info_; }

  // Logits [batch.logit_rows.size(), vocab_size], fp32, valid until the arena is reset. Stores keys
  // and values of every row in the windows' pages.
  virtual Tensor forward(ops::Context& ctx, const Batch& batch) const = 0;

  // One step of the MTP head, for models that loaded one. Row t of `hidden` is what forward() or
  // draft() left in Batch::hidden for some position; batch.token_ids[t] is the token that follows
  // it; positions, windows and pages are the hidden row's own. Gives logits of the token after that
  // one for batch.logit_rows, and through Batch::hidden the rows to go on from.
  virtual Tensor draft(ops::Context& ctx, const Batch& batch, Tensor hidden) const;

  // Of the last forward().
  virtual RowOutcome outcome(int64_t /*logit_row*/) const { return {}; }

 protected:
  ModelInfo info_;
};

struct LoadProgress {
  uint64_t bytes_done = 0;
  uint64_t bytes_total = 0;
};
using ProgressFn = std::function<void(const LoadProgress&)>;

struct LoadOptions {
  bool mtp = false;  // load the MTP head too, where the checkpoint has one
};

// Reads config, checks every tensor's name and shape, packs. An unknown architecture lists the
// known ones; a missing or wrong tensor is named with expected and found shapes. `cache` may spare
// the packing; it must be this checkpoint's.
Result<std::unique_ptr<Model>> load_model(const Checkpoint& checkpoint, Backend& backend,
                                          const ProgressFn& progress = {},
                                          PackedCache* cache = nullptr,
                                          const LoadOptions& options = {});

// Config and shapes only, no packing: for `invar info` and `invar plan`. packed_bytes and
// streamed_bytes_per_token are estimates from the file's formats.
Result<ModelInfo> describe_model(const Checkpoint& checkpoint, const LoadOptions& options = {});

std::vector<std::string> known_architectures();

}  // namespace invar
