#include "models/token_tables.h"

namespace invar {

bool has_own_head(const ModelSource& source, bool tied) {
  return source.has("lm_head") && (source.is_gguf() || !tied);
}

Result<void> TokenTables::load(const CommonConfig& c, const ModelSource& source, Packer& packer,
                               const char* embedding) {
  const bool own_head = has_own_head(source, c.tied);
  if (!own_head && !c.tied && !source.is_gguf())
    return corrupt("%s: tensor 'lm_head.weight' is missing, expected with shape [%d, %d]",
                   source.checkpoint().path.c_str(), c.vocab_size, c.hidden_size);
  INVAR_TRY(const auto table, source.matrix(embedding, c.vocab_size, c.hidden_size));
  INVAR_TRY(
      embed_tokens,
      packer.pack({{table}, PartOrder::kStacked, own_head ? MatrixRole::kInner : MatrixRole::kHead},
                  own_head ? 0 : 1));
  if (own_head) {
    INVAR_TRY(const auto head, source.matrix("lm_head", c.vocab_size, c.hidden_size));
    INVAR_TRY(lm_head, packer.pack(head, MatrixRole::kHead));
  }
  return {};
}

Tensor finish_rows(ops::Context& ctx, const Batch& batch, Tensor x, ops::FloatSpan norm, float eps,
                   const PackedWeight& head, float softcap) {
  if (batch.hidden == nullptr) {
    x = ops::gather_rows(ctx, x, batch.logit_rows);
    x = ops::rms_norm(ctx, x, norm, eps);
  } else {
    *batch.hidden = ops::rms_norm(ctx, x, norm, eps);
    x = ops::gather_rows(ctx, *batch.hidden, batch.logit_rows);
  }
  return ops::lm_head(ctx, x, head, softcap);
}

}  // namespace invar
