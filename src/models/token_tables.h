// The embedding and the head of a model, which may be one table.
#pragma once

#include <memory>

#include "models/common_config.h"
#include "models/packer.h"

namespace invar {

struct TokenTables {
  std::unique_ptr<PackedWeight> embed_tokens, lm_head;  // lm_head empty: the embedding

  const PackedWeight& head() const { return lm_head ? *lm_head : *embed_tokens; }
  Result<void> load(const CommonConfig& config, const ModelSource& source, Packer& packer,
                    const char* embedding = "model.embed_tokens");
};

// A head of its own leaves the embedding to look-ups of single rows.
bool has_own_head(const ModelSource& source, bool tied);

// The end of a forward(): batch.hidden where it is wanted, then the logits of batch.logit_rows.
Tensor finish_rows(ops::Context& ctx, const Batch& batch, Tensor x, ops::FloatSpan norm, float eps,
                   const PackedWeight& head, float softcap = 0);

}  // namespace invar
