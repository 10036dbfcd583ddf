// (7) The ops: before them models/dense_decoder.cc (6), after them backend/cpu/ (8), whose
// arithmetic gets checked shapes and results that are allocated already.
#include "ops/ops.h"

#include "ops/checks.h"

namespace invar::ops {
namespace {

void check_heads(const char* op, Tensor x, int head_dim) {
  INVAR_CHECK(head_dim > 0 && x.num_cols % head_dim == 0, "%s: %ld columns, head_dim %d", op,
              long{x.num_cols}, head_dim);
}

}  // namespace

Tensor embed(Context& ctx, std::span<const int32_t> ids, const PackedWeight& table, float scale) {
  count(ctx);
  for (const int32_t id : ids)
    INVAR_CHECK(id >= 0 && id < table.num_rows, "embed: id %d of %ld", id, long{table.num_rows});
  Tensor y = ctx.arena.rows(static_cast<int64_t>(ids.size()), table.num_cols);
  if (y.num_rows > 0) ctx.backend.embed(y, ids, table, scale);
  return y;
}

Tensor rms_norm(Context& ctx, Tensor x, FloatSpan weight, float eps) {
  return rms_norm_add(ctx, x, weight, eps, Tensor{});
}

Tensor rms_norm_add(Context& ctx, Tensor x, FloatSpan weight, float eps, Tensor residual) {
  count(ctx);
  check_cols("rms_norm", x, static_cast<int64_t>(weight.size()));
  INVAR_CHECK(residual.data == nullptr ||
                  (residual.num_rows == x.num_rows && residual.num_cols == x.num_cols),
              "rms_norm: residual [%ld, %ld]", long{residual.num_rows}, long{residual.num_cols});
  Tensor y = ctx.arena.rows(x.num_rows, x.num_cols);
  if (y.num_rows > 0) ctx.backend.rms_norm(y, x, weight, eps, residual);
  return y;
}

void rms_norm_to(Context& ctx, Tensor y, Tensor x, FloatSpan weight, float eps) {
  count(ctx);
  check_cols("rms_norm", x, static_cast<int64_t>(weight.size()));
  check_cols("rms_norm target", y, x.num_cols);
  INVAR_CHECK(y.num_rows == x.num_rows, "rms_norm: %ld rows to %ld", long{x.num_rows},
              long{y.num_rows});
  if (y.num_rows > 0) ctx.backend.rms_norm(y, x, weight, eps, Tensor{});
}

void head_rms_norm_(Context& ctx, Tensor x, int head_dim, FloatSpan weight, float eps) {
  check_heads("head_rms_norm", x, head_dim);
  INVAR_CHECK(static_cast<int>(weight.size()) == head_dim,
              "head_rms_norm: %zu weights, head_dim %d", weight.size(), head_dim);
  if (x.num_rows > 0) ctx.backend.head_rms_norm(x, head_dim, weight, eps);
}

Tensor linear(Context& ctx, Tensor x, const PackedWeight& w, FloatSpan bias) {
  count(ctx);
  check_cols("linear", x, w.num_cols);
  INVAR_CHECK(bias.empty() || static_cast<int64_t>(bias.size()) == w.num_rows,
              "linear: %zu biases for %ld rows", bias.size(), long{w.num_rows});
  Tensor y = ctx.arena.rows(x.num_rows, w.num_rows);
  if (y.num_rows > 0) ctx.backend.linear(y, x, w, bias, Tensor{});
  return y;
}

void linear_add_(Context& ctx, Tensor x, Tensor h, const PackedWeight& w, FloatSpan bias) {
  count(ctx);
  check_cols("linear_add_", h, w.num_cols);
  check_cols("linear_add_ target", x, w.num_rows);
  INVAR_CHECK(x.num_rows == h.num_rows, "linear_add_: %ld rows onto %ld", long{h.num_rows},
              long{x.num_rows});
  INVAR_CHECK(bias.empty() || static_cast<int64_t>(bias.size()) == w.num_rows,
              "linear_add_: %zu biases for %ld rows", bias.size(), long{w.num_rows});
  if (x.num_rows > 0) ctx.backend.linear(x, h, w, bias, x);
}

Tensor gated_linear(Context& ctx, Tensor x, const PackedWeight& gate_up, Activation activation) {
  count(ctx);
  check_cols("gated_linear", x, gate_up.num_cols);
  INVAR_CHECK(activation != Activation::kRelu2, "gated_linear: relu2 has no gate");
  Tensor y = ctx.arena.rows(x.num_rows, gate_up.num_rows);
  if (y.num_rows > 0) ctx.backend.gated_linear(y, x, gate_up, activation);
  return y;
}

void rope_(Context& ctx, Tensor x, int head_dim, std::span<const int32_t> positions,
           const RopeSpec& spec) {
  check_heads("rope", x, head_dim);
  INVAR_CHECK(static_cast<int64_t>(positions.size()) == x.num_rows, "rope: %zu positions, %ld rows",
              positions.size(), long{x.num_rows});
  INVAR_CHECK(2 * spec.inv_freq.size() <= static_cast<size_t>(head_dim),
              "rope: %zu frequencies, head_dim %d", spec.inv_freq.size(), head_dim);
  if (x.num_rows > 0) ctx.backend.rope(x, head_dim, positions, spec);
}

Tensor attention(Context& ctx, Tensor q, Tensor k, Tensor v, std::span<const Window> windows,
                 const AttentionArgs& args) {
  count(ctx);
  check_cols("attention q", q, int64_t{args.num_heads} * args.head_dim);
  check_cols("attention k", k, int64_t{args.num_kv_heads} * args.head_dim);
  check_cols("attention v", v, int64_t{args.num_kv_heads} * args.head_dim);
  int64_t row = 0;
  for (const Window& window : windows) {
    INVAR_CHECK(window.first_row == row, "attention: window begins at row %ld, expected %ld",
                long{window.first_row}, long{row});
    row += window.num_rows;
    const int64_t needed = (window.start + window.num_rows + kPagePositions - 1) / kPagePositions;
    INVAR_CHECK(static_cast<int64_t>(window.pages.size()) >= needed,
                "attention: %zu pages, %ld needed", window.pages.size(), long{needed});
  }
  INVAR_CHECK(row == q.num_rows, "attention: windows cover %ld of %ld rows", long{row},
              long{q.num_rows});
  Tensor y = ctx.arena.rows(q.num_rows, q.num_cols);
  if (y.num_rows > 0) ctx.backend.attention(y, q, k, v, windows, ctx.cache, args);
  return y;
}

Tensor gather_rows(Context& ctx, Tensor x, std::span<const int32_t> rows) {
  for (const int32_t row : rows)
    INVAR_CHECK(row >= 0 && row < x.num_rows, "gather_rows: row %d of %ld", row, long{x.num_rows});
  Tensor y = ctx.arena.rows(static_cast<int64_t>(rows.size()), x.num_cols);
  if (y.num_rows > 0) ctx.backend.gather_rows(y, x, rows);
  return y;
}

Tensor lm_head(Context& ctx, Tensor x, const PackedWeight& w, float softcap) {
  count(ctx);
  check_cols("lm_head", x, w.num_cols);
  Tensor logits = ctx.backend.logits_memory(ctx.arena, x.num_rows, w.num_rows);
  if (logits.num_rows > 0) ctx.backend.lm_head(logits, x, w, softcap);
  return logits;
}

}  // namespace invar::ops
