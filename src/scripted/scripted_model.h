// A model that says what its script says. It runs no kernel and keeps nothing in pages; which
// script, and how far it is, it reads from the sequence's own text, so that batches, preemption and
// the prefix cache find in it what they find in a real one.
#pragma once

#include <memory>
#include <vector>

#include "models/model.h"
#include "scripted/script.h"
#include "scripted/scripted_tokenizer.h"

namespace invar::scripted {

// Pages are counted, not kept.
std::unique_ptr<Backend> make_scripted_backend();
BackendInfo scripted_backend_info();

class ScriptedModel : public Model {
 public:
  // The tokenizer outlives the model.
  ScriptedModel(std::shared_ptr<const ScriptFile> file, const ScriptedTokenizer& tokenizer);

  Tensor forward(ops::Context& ctx, const Batch& batch) const override;
  RowOutcome outcome(int64_t logit_row) const override;

 private:
  // The script that answers a prompt; why there is none, if it names an unknown key.
  struct Choice {
    const Script* script = nullptr;  // null: the reply is empty
    std::string unknown_key;
  };
  Choice choose(std::span<const int32_t> prompt) const;
  double say(const Choice& choice, int64_t token_index, float* row, ops::Context& ctx,
             RowOutcome& outcome) const;
  void force(int32_t id, float* row) const;

  const std::shared_ptr<const ScriptFile> owner_;
  const ScriptFile& file_;
  const ScriptedTokenizer& tokenizer_;
  std::vector<int32_t> user_mark_, tool_mark_, end_mark_;
  mutable std::vector<RowOutcome> outcomes_;  // of the last forward()
};

}  // namespace invar::scripted
