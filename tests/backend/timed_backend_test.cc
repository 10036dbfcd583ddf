// What TimedBackend counts of experts: it cannot know beforehand whom rows choose.
#include "backend/timed_backend.h"

#include <gtest/gtest.h>

#include "backend/cpu_linear_oracle.h"
#include "backend/cpu_ops_util.h"

namespace invar {
namespace {

TEST(TimedBackend, CountsTheExpertsThatRowsChose) {
  BackendOptions options;
  options.num_threads = 1;
  TimedBackend backend(std::move(make_backend("cpu", options)).value(), true);
  std::mt19937 random(1);
  PackRequest up, down, table;
  up.num_experts = down.num_experts = 8;
  const test::OwnedMatrix matrix = test::random_matrix({WeightFormat::kQ4_0}, 64, 64, random);
  up.parts.assign(16, matrix.view);
  up.order = PartOrder::kGateAndUp;
  down.parts.assign(8, matrix.view);
  table.parts = {matrix.view};
  const auto up_weight = std::move(backend.pack(up)).value();
  const auto down_weight = std::move(backend.pack(down)).value();
  const auto table_weight = std::move(backend.pack(table)).value();
  MoeArgs args;
  args.num_experts = 8;
  args.num_experts_per_tok = 2;

  // Three rows: experts 1 and 2, 2 and 1, 2 and 5.
  std::vector<float> logits(24), x = cpu::random_floats(3 * 64, 2), y(x.size());
  for (size_t chosen : {1, 2, 8 + 1, 8 + 2, 16 + 2, 16 + 5}) logits[chosen] = 1;
  const std::vector<int32_t> ids = {0, 1, 2};
  backend.embed(cpu::tensor_of(y, 64), ids, *table_weight, 1);
  backend.moe_ops()->moe(cpu::tensor_of(y, 64), cpu::tensor_of(x, 64), cpu::tensor_of(logits, 8),
                         *up_weight, *down_weight, args, Tensor{});
  backend.synchronize();
  const std::vector<StepTime> steps = backend.take_steps();
  ASSERT_EQ(steps.size(), 1u);
  const double expert = static_cast<double>(up_weight->num_bytes + down_weight->num_bytes) / 8;
  EXPECT_EQ(steps[0].weight_bytes, 3 * expert);
  EXPECT_EQ(steps[0].linear_macs, 3 * 2 * 3 * 64 * 64);
  ASSERT_EQ(steps[0].ops.size(), 2u);
  EXPECT_EQ(steps[0].ops[1].kind, OpKind::kMoe);
  EXPECT_EQ(steps[0].ops[1].read_bytes, 3 * expert);
  EXPECT_GT(steps[0].ops[1].seconds, 0);

  BackendOptions reference;
  TimedBackend other(std::move(make_backend("reference", reference)).value(), false);
  EXPECT_NE(other.recurrent_ops(), nullptr);
  EXPECT_NE(other.moe_ops(), nullptr);
}

}  // namespace
}  // namespace invar
