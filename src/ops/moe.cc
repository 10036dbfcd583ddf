// (7) See ops.cc.
#include "ops/moe.h"

#include "ops/checks.h"

namespace invar::ops {
namespace {

MoeOps& ops_of(const Context& ctx) {
  MoeOps* const ops = ctx.backend.moe_ops();
  INVAR_CHECK(ops != nullptr, "%s has no experts", ctx.backend.info().name.c_str());
  return *ops;
}

void run(Context& ctx, Tensor y, Tensor x, Tensor logits, const PackedWeight& up,
         const PackedWeight& down, const MoeArgs& args, Tensor residual) {
  count(ctx);
  check_cols("moe", x, up.num_cols);
  check_cols("moe logits", logits, args.num_experts);
  check_cols("moe target", y, down.num_rows);
  INVAR_CHECK(up.num_experts == args.num_experts && down.num_experts == args.num_experts,
              "moe: %d and %d experts packed, expected %d", up.num_experts, down.num_experts,
              args.num_experts);
  INVAR_CHECK(down.num_cols == up.num_rows, "moe: down has %ld columns, up %ld rows",
              long{down.num_cols}, long{up.num_rows});
  INVAR_CHECK(args.num_experts_per_tok >= 1 && args.num_experts_per_tok <= args.num_experts,
              "moe: %d of %d experts", args.num_experts_per_tok, args.num_experts);
  INVAR_CHECK(args.n_group >= 1 && args.num_experts % args.n_group == 0 && args.topk_group >= 1 &&
                  args.topk_group <= args.n_group &&
                  args.num_experts_per_tok <= args.topk_group * (args.num_experts / args.n_group),
              "moe: %d of %d groups", args.topk_group, args.n_group);
  INVAR_CHECK(args.correction_bias.empty() ||
                  static_cast<int>(args.correction_bias.size()) == args.num_experts,
              "moe: %zu biases", args.correction_bias.size());
  INVAR_CHECK(logits.num_rows == x.num_rows && y.num_rows == x.num_rows,
              "moe: %ld rows, %ld of logits", long{x.num_rows}, long{logits.num_rows});
  if (y.num_rows > 0) ops_of(ctx).moe(y, x, logits, up, down, args, residual);
}

}  // namespace

Tensor router(Context& ctx, Tensor x, const PackedWeight& w) {
  count(ctx);
  check_cols("router", x, w.num_cols);
  Tensor logits = ctx.arena.rows(x.num_rows, w.num_rows);
  if (logits.num_rows > 0) ops_of(ctx).router(logits, x, w);
  return logits;
}

Tensor moe(Context& ctx, Tensor x, Tensor logits, const PackedWeight& up, const PackedWeight& down,
           const MoeArgs& args) {
  Tensor y = ctx.arena.rows(x.num_rows, down.num_rows);
  run(ctx, y, x, logits, up, down, args, Tensor{});
  return y;
}

void moe_add_(Context& ctx, Tensor residual, Tensor x, Tensor logits, const PackedWeight& up,
              const PackedWeight& down, const MoeArgs& args) {
  run(ctx, residual, x, logits, up, down, args, residual);
}

void add_gated_(Context& ctx, Tensor y, Tensor x, Tensor gate) {
  count(ctx);
  check_cols("add_gated_", x, y.num_cols);
  check_cols("add_gated_ gate", gate, 1);
  INVAR_CHECK(x.num_rows == y.num_rows && gate.num_rows == y.num_rows,
              "add_gated_: %ld rows onto %ld", long{x.num_rows}, long{y.num_rows});
  if (y.num_rows > 0) ops_of(ctx).add_gated(y, x, gate);
}

}  // namespace invar::ops
