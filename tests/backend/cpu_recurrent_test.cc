// Recurrent ops of the cpu backend: bits equal whatever the instruction set, threads, windows,
// slots and company; the elementary functions against long double; copies of states. What the
// numbers must be is recurrent_test.cc.
#include <cmath>

#include "backend/cpu/simd_kernels.h"
#include "backend/cpu/state_cache.h"
#include "backend/recurrent_util.h"

namespace invar::test {
namespace {

using cpu::Isa;
using cpu::testable_isas;

// Cuts of a sequence: token by token, around multiples of the chunk of 32 rows, at random.
std::vector<std::vector<int64_t>> cuts() {
  std::mt19937 random(7);
  std::vector<int64_t> some;
  for (int i = 0; i < 20; ++i) some.push_back(1 + static_cast<int64_t>(random() % 9));
  return {{1}, {2, 3}, {31}, {32}, {33, 64}, {1, 128}, some};
}

// `c` gives the same bits every way.
template <typename Case>
void expect_same_bits_every_way(const Case& c) {
  const std::vector<float> y = c.run(cpu_ops());
  for (float value : y) ASSERT_TRUE(std::isfinite(value));
  for (Isa isa : testable_isas()) {
    const Ops one = cpu_ops(isa, 1), two = cpu_ops(isa, 2);
    EXPECT_TRUE(same_bits(y, c.run(one))) << isa_name(isa);
    EXPECT_TRUE(same_bits(y, c.run(two, {.slot = 3}))) << isa_name(isa);
    EXPECT_TRUE(same_bits(y, c.run(two, {.cuts = {7}, .slot = 1, .neighbours = true})))
        << isa_name(isa) << " beside inf and NaN";
    EXPECT_TRUE(same_bits(y, c.run(one, {.cuts = {1}, .slot = 2, .garbage = true})))
        << isa_name(isa) << " in a slot of inf and NaN";
  }
  const Ops ops = cpu_ops(), three = cpu_ops(cpu::best_isa(), 3);
  for (const std::vector<int64_t>& cut : cuts()) {
    EXPECT_TRUE(same_bits(y, c.run(ops, {.cuts = cut}))) << "windows of " << cut[0];
    EXPECT_TRUE(
        same_bits(y, c.run(three, {.cuts = cut, .slot = 2, .neighbours = true, .garbage = true})))
        << "windows of " << cut[0] << ", 3 threads";
  }
}

TEST(CpuGatedDelta, BitsAreTheSameEveryWay) {
  expect_same_bits_every_way(DeltaCase(2, 4, 128, 128, 140, 1));
  expect_same_bits_every_way(DeltaCase(1, 3, 5, 12, 200, 2));
  expect_same_bits_every_way(DeltaCase(2, 2, 33, 40, 130, 3, HeadOrder::kTiled));
  expect_same_bits_every_way(DeltaCase(1, 1, 1, 1, 20, 4));
  expect_same_bits_every_way(DeltaCase(2, 6, 16, 65, 70, 5));
}

TEST(CpuSsd, BitsAreTheSameEveryWay) {
  SsdCase clamped(4, 64, 1, 128, 140, 1);
  clamped.dt_min = 0.3f;
  clamped.dt_max = 1.0f;
  expect_same_bits_every_way(clamped);
  expect_same_bits_every_way(SsdCase(6, 12, 3, 5, 200, 2));
  expect_same_bits_every_way(SsdCase(2, 33, 2, 40, 130, 3));
  expect_same_bits_every_way(SsdCase(1, 1, 1, 1, 20, 4));
}

TEST(CpuShortConv, BitsAreTheSameEveryWay) {
  expect_same_bits_every_way(ConvCase(600, 4, true, 140, 1));
  expect_same_bits_every_way(ConvCase(5, 2, false, 30, 2));
  expect_same_bits_every_way(ConvCase(513, 8, false, 40, 3));
  expect_same_bits_every_way(ConvCase(33, 1, true, 20, 4));
}

TEST(CpuGatedNorm, BitsAreTheSameEveryWay) {
  for (const auto& [rows, cols, group] :
       {std::array{40, 1024, 128}, {3, 24, 12}, {5, 66, 33}, {1, 7, 1}, {2, 1000, 500}}) {
    const auto size = static_cast<size_t>(rows * cols);
    std::vector<float> x = random_floats(size, 1), z = random_floats(size, 2, 3);
    const std::vector<float> weight = random_floats(static_cast<size_t>(group), 3);
    for (GateOrder order : {GateOrder::kNormThenGate, GateOrder::kGateThenNorm}) {
      for (bool sigmoid : {false, true}) {
        const GatedNormArgs args{group, 1e-6f, order, sigmoid};
        const auto norm = [&](const Ops& ops, int row, int count) {
          std::vector<float> part(x.begin() + row * cols, x.begin() + (row + count) * cols);
          std::vector<float> gate(z.begin() + row * cols, z.begin() + (row + count) * cols);
          ops->gated_norm(tensor_of(part, cols), tensor_of(part, cols), tensor_of(gate, cols),
                          weight, args);
          return part;
        };
        const std::vector<float> y = norm(cpu_ops(), 0, rows);
        EXPECT_LT(worst_error(y, norm(reference_ops(), 0, rows), static_cast<size_t>(cols)), 6e-7);
        for (Isa isa : testable_isas())
          EXPECT_TRUE(same_bits(y, norm(cpu_ops(isa, 2), 0, rows))) << isa_name(isa);
        const std::vector<float> last = norm(cpu_ops(), rows - 1, 1);
        EXPECT_TRUE(same_bits(last.data(), y.data() + (rows - 1) * cols, cols));
      }
    }
  }
}

TEST(CpuGates, BitsAreTheSameEveryWay) {
  std::vector<float> x = random_floats(50 * 700, 1, 4), gate = random_floats(x.size(), 2, 20);
  const auto run = [&](const Ops& ops, int64_t cols) {
    std::vector<float> gated = x, squared = x;
    ops->sigmoid_gate(tensor_of(gated, cols), tensor_of(gate, cols));
    ops->relu2(tensor_of(squared, cols));
    gated.insert(gated.end(), squared.begin(), squared.end());
    return gated;
  };
  const std::vector<float> y = run(cpu_ops(), 700);
  EXPECT_LT(worst_error(y, run(reference_ops(), 700), 1), 3e-7);
  for (Isa isa : testable_isas())
    for (int64_t cols : {1, 7, 50, 700})
      EXPECT_TRUE(same_bits(y, run(cpu_ops(isa, 2), cols))) << isa_name(isa);
}

// The bits themselves, for machines with other instruction sets: they belong to cpu-1 and never
// change. Inputs are made without any libm.
TEST(CpuRecurrent, FrozenBits) {
  std::mt19937 random(1);
  const auto values = [&](size_t count) {
    std::vector<float> v(count);
    for (float& x : v) x = (static_cast<float>(random() % 4001) - 2000) / 1024;
    return v;
  };
  const auto refill = [&](std::vector<Input>& inputs) {
    for (Input& input : inputs) input.values = values(input.values.size());
  };
  DeltaCase delta(2, 4, 40, 72, 50, 1);
  refill(delta.inputs);
  SsdCase ssd(4, 40, 2, 72, 50, 1);
  ssd.dt_min = 0.25f;
  ssd.dt_max = 2;
  refill(ssd.inputs);
  ConvCase conv(100, 4, true, 50, 1);
  refill(conv.inputs);
  conv.weight = values(conv.weight.size());
  conv.bias = values(conv.bias.size());
  const std::vector<float> x = values(6 * 100), z = values(6 * 100), weight = values(50);
  const auto hash = [](const std::vector<float>& v) {  // FNV-1a
    uint64_t h = 0xcbf29ce484222325;
    for (float f : v) {
      uint32_t bits;
      std::memcpy(&bits, &f, 4);
      for (int i = 0; i < 4; ++i, bits >>= 8) h = (h ^ (bits & 0xff)) * 0x100000001b3;
    }
    return h;
  };
  for (Isa isa : testable_isas()) {
    const Ops ops = cpu_ops(isa);
    EXPECT_EQ(hash(delta.run(ops)), 0xfe38fe7840b317c9u) << isa_name(isa);
    EXPECT_EQ(hash(ssd.run(ops)), 0xf543b3e025f4160eu) << isa_name(isa);
    EXPECT_EQ(hash(conv.run(ops)), 0x15e2bff11045ea9bu) << isa_name(isa);
    std::vector<float> y = x, gate = z, gated = x, squared = x;
    for (GateOrder order : {GateOrder::kNormThenGate, GateOrder::kGateThenNorm})
      ops->gated_norm(tensor_of(y, 100), tensor_of(y, 100), tensor_of(gate, 100), weight,
                      {50, 1e-6f, order, order == GateOrder::kGateThenNorm});
    ops->sigmoid_gate(tensor_of(gated, 100), tensor_of(gate, 100));
    ops->relu2(tensor_of(squared, 100));
    y.insert(y.end(), gated.begin(), gated.end());
    y.insert(y.end(), squared.begin(), squared.end());
    EXPECT_EQ(hash(y), 0x3d00077cdcb8845au) << isa_name(isa);
  }
}

// softplus and the gates, through the kernels' own table.
TEST(CpuRecurrentGates, Softplus) {
  std::vector<float> x;
  for (int i = -14000; i <= 14000; ++i) x.push_back(static_cast<float>(i) * 0.00713f);
  for (float e = 1e-30f; e < 1; e *= 1.7f) x.insert(x.end(), {e, -e});
  for (Isa isa : testable_isas()) {
    std::vector<float> alpha(x.size()), step(x.size());
    cpu::StateGates gates;
    gates.keep = alpha.data();
    gates.gain = step.data();
    gates.num_rows = static_cast<int64_t>(x.size());
    gates.step = x.data();
    gates.decay = -0.7f;
    cpu::simd_kernels(isa).recurrent.ssd_gates(gates);
    double worst = 0, worst_alpha = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const long double v = static_cast<long double>(x[i]);
      const long double want = std::log1p(std::exp(v));
      if (x[i] > -87) {  // below, exp is 0
        worst = std::max(worst, static_cast<double>(std::abs(step[i] - want) / want));
      } else {
        EXPECT_EQ(step[i], 0.0f);
      }
      const long double kept = std::exp(static_cast<long double>(-0.7f) * want);
      worst_alpha = std::max(worst_alpha, static_cast<double>(std::abs(alpha[i] - kept)));
    }
    EXPECT_LT(worst, 3e-7) << isa_name(isa);
    EXPECT_LT(worst_alpha, 2e-7) << isa_name(isa);

    const float edges[] = {cpu::kInf, -cpu::kInf, cpu::kNan, 3e38f, -3e38f, 0};
    gates.step = edges;
    gates.num_rows = 6;
    cpu::simd_kernels(isa).recurrent.ssd_gates(gates);
    EXPECT_EQ(step[0], cpu::kInf);
    EXPECT_EQ(step[1], 0.0f);
    EXPECT_TRUE(std::isnan(step[2]));
    EXPECT_EQ(step[3], 3e38f);
    EXPECT_EQ(step[4], 0.0f);
    EXPECT_EQ(alpha[0], 0.0f);  // everything forgotten
    EXPECT_EQ(alpha[1], 1.0f);  // everything kept
    EXPECT_NEAR(static_cast<double>(step[5]), std::log(2.0), 1e-7);
  }
}

// A copy goes on as the sequence itself does, and neither touches the other.
TEST(StateCopies, GoOnAsTheSequenceDoes) {
  const DeltaCase delta(2, 4, 20, 24, 50, 1);
  const ConvCase conv(70, 4, true, 50, 2);
  std::vector<RecurrentLayerShape> layers = delta.layers();
  layers[1].conv_channels = 70;
  layers[1].conv_kernel = 4;
  const auto first_rows = [](std::vector<Input> inputs, int64_t count) {
    for (Input& input : inputs) input.values.resize(static_cast<size_t>(count * input.num_cols));
    return inputs;
  };
  for (int threads : {1, 2}) {
    std::vector<Ops> all;
    all.push_back(reference_ops());
    all.push_back(cpu_ops(cpu::best_isa(), threads));
    for (const Ops& ops : all) {
      const auto states = make_states(ops, layers, kNumSlots);
      const Step delta_step = delta.step(ops, *states), conv_step = conv.step(ops, *states);
      const int64_t cols = delta.y_cols();
      const std::vector<float> y = run_sequence(delta.inputs, cols, {.slot = 0}, delta_step);
      const std::vector<float> z = run_sequence(conv.inputs, 70, {.slot = 0}, conv_step);
      // 30 rows in slot 1, a copy in slot 2, other rows through slot 1, then the rest in slot 2.
      run_sequence(first_rows(delta.inputs, 30), cols, {.slot = 1}, delta_step);
      run_sequence(first_rows(conv.inputs, 30), 70, {.slot = 1}, conv_step);
      ops->copy_state(*states, 1, 2);
      run_sequence(DeltaCase(2, 4, 20, 24, 9, 5).inputs, cols, {.slot = 1}, delta_step);
      run_sequence(ConvCase(70, 4, true, 9, 6).inputs, 70, {.slot = 1}, conv_step);
      ops->copy_state(*states, 2, 3);
      ops->copy_state(*states, 3, 3);
      for (int slot : {2, 3}) {
        const Way way{.cuts = {7}, .slot = slot};
        const std::vector<float> rest = run_sequence(delta.inputs, cols, way, delta_step, 30);
        EXPECT_TRUE(same_bits(rest.data(), y.data() + 30 * cols, 20 * cols)) << ops.name;
        const std::vector<float> more = run_sequence(conv.inputs, 70, way, conv_step, 30);
        EXPECT_TRUE(same_bits(more.data(), z.data() + 30 * 70, 20 * 70)) << ops.name;
      }
    }
  }
}

TEST(CpuStateCache, ComesFromTheBackend) {
  const auto backend = std::move(make_backend("cpu", BackendOptions{})).value();
  ASSERT_NE(backend->recurrent_ops(), nullptr);
  const std::vector<RecurrentLayerShape> layers = {{5, 4, 3, 7, 12}};
  EXPECT_TRUE(backend->recurrent_ops()->make_state_cache(layers, 2).ok());
}

TEST(CpuStateCache, SizesAndRefusals) {
  const Ops ops = cpu_ops();
  // Qwen3.6-35B-A3B: 2 MiB of states and 3 rows of 8192 channels a layer.
  const std::vector<RecurrentLayerShape> layers(30, {8192, 4, 32, 128, 128});
  EXPECT_EQ(ops->state_slot_bytes(layers), size_t{30} * ((2 << 20) + 3 * 8192 * 4));
  EXPECT_EQ(ops->state_slot_bytes({}), 0u);
  // Columns are padded to whole vectors, kept rows to a cache line.
  const std::vector<RecurrentLayerShape> odd = {{5, 4, 3, 7, 12}, {0, 0, 1, 2, 33}};
  EXPECT_EQ(ops->state_slot_bytes(odd), (16 + 3 * 7 * 16 + 2 * 48) * sizeof(float));

  const auto states = make_states(ops, odd, 3);
  EXPECT_EQ(states->num_slots, 3);
  EXPECT_GE(states->num_bytes, 3 * ops->state_slot_bytes(odd));

  EXPECT_FALSE(ops->make_state_cache(odd, 0).ok());
  const std::vector<RecurrentLayerShape> huge(1, {0, 0, 1 << 15, 1 << 15, 1 << 15});
  for (int num_slots : {100'000, 2'000'000'000}) {
    const auto refused = ops->make_state_cache(huge, num_slots);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kResourceExhausted);
    EXPECT_NE(refused.error().message.find("bytes"), std::string::npos);
  }
}

}  // namespace
}  // namespace invar::test
