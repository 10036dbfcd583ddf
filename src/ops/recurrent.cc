// (7) See ops.cc.
#include "ops/recurrent.h"

#include "ops/checks.h"

namespace invar::ops {
namespace {

RecurrentOps& ops_of(const Context& ctx) {
  RecurrentOps* const ops = ctx.backend.recurrent_ops();
  INVAR_CHECK(ops != nullptr, "%s has no recurrent ops", ctx.backend.info().name.c_str());
  return *ops;
}

StateCache& states_of(const Context& ctx, std::span<const Window> windows, int64_t num_rows) {
  INVAR_CHECK(ctx.states != nullptr, "no state cache");
  int64_t row = 0;
  for (const Window& window : windows) {
    INVAR_CHECK(window.first_row == row, "window begins at row %ld, expected %ld",
                long{window.first_row}, long{row});
    INVAR_CHECK(window.state_slot >= 0 && window.state_slot < ctx.states->num_slots,
                "state slot %d of %d", window.state_slot, ctx.states->num_slots);
    row += window.num_rows;
  }
  INVAR_CHECK(row == num_rows, "windows cover %ld of %ld rows", long{row}, long{num_rows});
  return *ctx.states;
}

}  // namespace

Tensor short_conv(Context& ctx, Tensor x, FloatSpan weight, FloatSpan bias,
                  std::span<const Window> windows, int layer) {
  count(ctx);
  StateCache& states = states_of(ctx, windows, x.num_rows);
  INVAR_CHECK(!weight.empty() && static_cast<int64_t>(weight.size()) % x.num_cols == 0,
              "short_conv: %zu weights for %ld channels", weight.size(), long{x.num_cols});
  INVAR_CHECK(bias.empty() || static_cast<int64_t>(bias.size()) == x.num_cols,
              "short_conv: %zu biases for %ld channels", bias.size(), long{x.num_cols});
  Tensor y = ctx.arena.rows(x.num_rows, x.num_cols);
  if (y.num_rows > 0) ops_of(ctx).short_conv(y, x, weight, bias, windows, states, layer);
  return y;
}

Tensor gated_delta(Context& ctx, Tensor q, Tensor k, Tensor v, Tensor a, Tensor b,
                   std::span<const Window> windows, const GatedDeltaArgs& args) {
  count(ctx);
  StateCache& states = states_of(ctx, windows, q.num_rows);
  check_cols("gated_delta q", q, int64_t{args.num_key_heads} * args.key_dim);
  check_cols("gated_delta k", k, int64_t{args.num_key_heads} * args.key_dim);
  check_cols("gated_delta v", v, int64_t{args.num_value_heads} * args.value_dim);
  check_cols("gated_delta a", a, args.num_value_heads);
  check_cols("gated_delta b", b, args.num_value_heads);
  INVAR_CHECK(args.num_value_heads % args.num_key_heads == 0, "%d value heads, %d key heads",
              args.num_value_heads, args.num_key_heads);
  Tensor y = ctx.arena.rows(v.num_rows, v.num_cols);
  if (y.num_rows > 0) ops_of(ctx).gated_delta(y, q, k, v, a, b, windows, states, args);
  return y;
}

Tensor ssd(Context& ctx, Tensor x, Tensor b, Tensor c, Tensor dt, std::span<const Window> windows,
           const SsdArgs& args) {
  count(ctx);
  StateCache& states = states_of(ctx, windows, x.num_rows);
  check_cols("ssd x", x, int64_t{args.num_heads} * args.head_dim);
  check_cols("ssd B", b, int64_t{args.num_groups} * args.state_size);
  check_cols("ssd C", c, int64_t{args.num_groups} * args.state_size);
  check_cols("ssd dt", dt, args.num_heads);
  INVAR_CHECK(args.num_heads % args.num_groups == 0, "%d heads in %d groups", args.num_heads,
              args.num_groups);
  Tensor y = ctx.arena.rows(x.num_rows, x.num_cols);
  if (y.num_rows > 0) ops_of(ctx).ssd(y, x, b, c, dt, windows, states, args);
  return y;
}

Tensor gated_norm(Context& ctx, Tensor x, Tensor z, FloatSpan weight, const GatedNormArgs& args) {
  count(ctx);
  check_cols("gated_norm gate", z, x.num_cols);
  const auto size = static_cast<int64_t>(weight.size());
  INVAR_CHECK(args.group_size > 0 && x.num_cols % args.group_size == 0 &&
                  (size == args.group_size || size == x.num_cols),
              "gated_norm: %zu weights, groups of %d, %ld columns", weight.size(), args.group_size,
              long{x.num_cols});
  Tensor y = ctx.arena.rows(x.num_rows, x.num_cols);
  if (y.num_rows > 0) ops_of(ctx).gated_norm(y, x, z, weight, args);
  return y;
}

void sigmoid_gate_(Context& ctx, Tensor x, Tensor gate) {
  count(ctx);
  check_cols("sigmoid_gate_", gate, x.num_cols);
  if (x.num_rows > 0) ops_of(ctx).sigmoid_gate(x, gate);
}

void relu2_(Context& ctx, Tensor x) {
  count(ctx);
  if (x.num_rows > 0) ops_of(ctx).relu2(x);
}

}  // namespace invar::ops
