// Row ops of the cpu backend: against double, and bits equal over instruction sets, row counts,
// threads and neighbours. Also the choice of the instruction set.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "backend/cpu/rms_norm.h"
#include "backend/cpu/rope.h"
#include "backend/cpu/row_ops.h"
#include "backend/cpu_ops_util.h"
#include "base/math.h"

namespace invar::cpu {
namespace {

double square(double x) { return x * x; }

TEST(CpuRmsNorm, IsNearDouble) {
  ThreadPool pool(1);
  for (int64_t cols : {1, 15, 16, 17, 64, 576, 5123}) {
    for (bool with_residual : {false, true}) {
      std::vector<float> x = random_floats(static_cast<size_t>(3 * cols), 1, 3);
      std::vector<float> weight = random_floats(static_cast<size_t>(cols), 2);
      std::vector<float> residual = random_floats(x.size(), 3), y(x.size());
      rms_norm(pool, best_isa(), tensor_of(y, cols), tensor_of(x, cols), weight, 1e-5f,
               with_residual ? tensor_of(residual, cols) : Tensor{});
      for (int64_t t = 0; t < 3; ++t) {
        double sum = 0;
        for (int64_t i = 0; i < cols; ++i)
          sum += square(static_cast<double>(x[static_cast<size_t>(t * cols + i)]));
        const double r = 1 / std::sqrt(sum / static_cast<double>(cols) + 1e-5f);
        for (int64_t i = 0; i < cols; ++i) {
          const size_t at = static_cast<size_t>(t * cols + i);
          const double want =
              static_cast<double>(x[at]) * r * static_cast<double>(weight[static_cast<size_t>(i)]) +
              (with_residual ? static_cast<double>(residual[at]) : 0);
          EXPECT_NEAR(static_cast<double>(y[at]), want, 2e-6 * (1 + std::fabs(want)));
        }
      }
    }
  }
}

TEST(CpuRmsNorm, BitsDependOnTheRowOnly) {
  constexpr int64_t kRows = 40, kCols = 576;
  std::vector<float> x = random_floats(kRows * kCols, 4), residual = random_floats(x.size(), 5);
  const std::vector<float> weight = random_floats(kCols, 6);
  ThreadPool one(1), three(3);
  std::vector<float> y(x.size());
  rms_norm(one, Isa::kPortable, tensor_of(y, kCols), tensor_of(x, kCols), weight, 1e-6f,
           tensor_of(residual, kCols));
  for (Isa isa : testable_isas()) {
    for (ThreadPool* pool : {&one, &three}) {
      // All at once, in place, with every third row replaced by garbage.
      std::vector<float> noisy = x, in_place = residual;
      for (int64_t t = 0; t < kRows; t += 3)
        for (int64_t i = 0; i < kCols; ++i)
          noisy[static_cast<size_t>(t * kCols + i)] = i % 2 ? kNan : kInf;
      rms_norm(*pool, isa, tensor_of(in_place, kCols), tensor_of(noisy, kCols), weight, 1e-6f,
               tensor_of(in_place, kCols));
      for (int64_t t = 0; t < kRows; ++t) {
        const size_t at = static_cast<size_t>(t * kCols);
        EXPECT_TRUE(t % 3 == 0 || same_bits(&y[at], &in_place[at], kCols));
        std::vector<float> alone(x.begin() + t * kCols, x.begin() + (t + 1) * kCols), out(kCols);
        std::vector<float> its(residual.begin() + t * kCols, residual.begin() + (t + 1) * kCols);
        rms_norm(*pool, isa, tensor_of(out, kCols), tensor_of(alone, kCols), weight, 1e-6f,
                 tensor_of(its, kCols));
        EXPECT_TRUE(same_bits(&y[static_cast<size_t>(t * kCols)], out.data(), kCols));
      }
    }
  }
}

TEST(CpuRmsNorm, ForgetsAPowerOfTwo) {
  std::vector<float> x = random_floats(256, 7), y(256), scaled = x, y_scaled(256);
  for (float& v : scaled) v *= 8;
  const std::vector<float> weight = random_floats(256, 8);
  ThreadPool pool(1);
  rms_norm(pool, best_isa(), tensor_of(y, 256), tensor_of(x, 256), weight, 0, {});
  rms_norm(pool, best_isa(), tensor_of(y_scaled, 256), tensor_of(scaled, 256), weight, 0, {});
  EXPECT_TRUE(same_bits(y, y_scaled));
}

TEST(CpuHeadRmsNorm, IsRmsNormOfEachHead) {
  for (Isa isa : testable_isas()) {
    for (int head_dim : {20, 64, 128}) {
      const int64_t cols = int64_t{head_dim} * 3;
      std::vector<float> x = random_floats(static_cast<size_t>(cols * 70), 9), heads = x;
      const std::vector<float> weight = random_floats(static_cast<size_t>(head_dim), 10);
      std::vector<float> y(x.size());
      ThreadPool pool(2);
      rms_norm(pool, isa, tensor_of(y, head_dim), tensor_of(x, head_dim), weight, 1e-6f, {});
      head_rms_norm(pool, isa, tensor_of(heads, cols), head_dim, weight, 1e-6f);
      EXPECT_TRUE(same_bits(y, heads));
    }
  }
}

RopeSpec rope_spec(int num_pairs, double theta, double magnitude) {
  RopeSpec spec;
  spec.magnitude = magnitude;
  for (int i = 0; i < num_pairs; ++i)
    spec.inv_freq.push_back(pow_f64(theta, -static_cast<double>(i) / num_pairs));
  return spec;
}

TEST(CpuRope, RotatesPairsByTheAngle) {
  ThreadPool pool(1);
  RopeTables tables;
  // Whole heads, partial heads (the rest passes through), pairs that are no multiple of 16.
  for (const auto& [head_dim, pairs] :
       {std::array{64, 32}, {80, 10}, {40, 20}, {16, 0}, {256, 128}}) {
    for (double magnitude : {1.0, 1.1386}) {
      const RopeSpec spec = rope_spec(pairs, 10000, magnitude);
      const std::vector<int32_t> positions = {0, 1, 255, 256, 8191, 1'000'000};
      const int64_t cols = int64_t{head_dim} * 3;
      std::vector<float> x = random_floats(positions.size() * static_cast<size_t>(cols), 11), y = x;
      rope(pool, best_isa(), tensor_of(y, cols), head_dim, positions, spec, tables);
      for (size_t t = 0; t < positions.size(); ++t) {
        for (int head = 0; head < 3; ++head) {
          const size_t at = t * static_cast<size_t>(cols) + static_cast<size_t>(head * head_dim);
          for (int i = 0; i < head_dim; ++i) {
            double want = static_cast<double>(x[at + static_cast<size_t>(i)]);
            if (i < 2 * pairs) {
              const int pair = i % pairs;
              const double angle = positions[t] * spec.inv_freq[static_cast<size_t>(pair)];
              const double x0 = static_cast<double>(x[at + static_cast<size_t>(pair)]);
              const double x1 = static_cast<double>(x[at + static_cast<size_t>(pair + pairs)]);
              want = magnitude * (i < pairs ? x0 * std::cos(angle) - x1 * std::sin(angle)
                                            : x1 * std::cos(angle) + x0 * std::sin(angle));
              EXPECT_NEAR(static_cast<double>(y[at + static_cast<size_t>(i)]), want, 2e-6);
            } else {
              EXPECT_EQ(y[at + static_cast<size_t>(i)], x[at + static_cast<size_t>(i)]);
            }
          }
        }
      }
    }
  }
}

TEST(CpuRope, BitsDependOnTheRowAndItsPositionOnly) {
  constexpr int64_t kRows = 300, kCols = 192;
  const RopeSpec spec = rope_spec(32, 1e5, 1), other = rope_spec(32, 1e4, 1);
  const std::vector<float> x = random_floats(kRows * kCols, 12);
  std::vector<int32_t> positions(kRows);
  for (int i = 0; i < kRows; ++i) positions[static_cast<size_t>(i)] = (i * 977) % 5000;
  std::vector<float> y = x;
  ThreadPool one(1), three(3);
  RopeTables fresh;
  rope(one, Isa::kPortable, tensor_of(y, kCols), 64, positions, spec, fresh);
  for (Isa isa : testable_isas()) {
    RopeTables tables;
    for (ThreadPool* pool : {&one, &three}) {
      std::vector<float> all = x, unrelated = x, single;
      rope(*pool, isa, tensor_of(unrelated, kCols), 64, positions, other, tables);
      EXPECT_FALSE(same_bits(y, unrelated));
      rope(*pool, isa, tensor_of(all, kCols), 64, positions, spec, tables);
      EXPECT_TRUE(same_bits(y, all));
      for (size_t t = 0; t < kRows; t += 37) {
        single.assign(x.begin() + static_cast<long>(t * kCols),
                      x.begin() + static_cast<long>((t + 1) * kCols));
        rope(*pool, isa, tensor_of(single, kCols), 64, std::span(&positions[t], 1), spec, tables);
        EXPECT_TRUE(same_bits(&y[t * kCols], single.data(), kCols));
      }
    }
  }
}

TEST(CpuRope, TablesStayBounded) {
  RopeTables tables;
  const RopeSpec spec = rope_spec(128, 1e6, 1);
  for (int32_t position = 0; position < 200'000; position += 256) {
    const std::span<const float* const> rows = tables.find(spec, std::span(&position, 1));
    ASSERT_EQ(rows.size(), 1u);
    EXPECT_EQ(rows[0][0], static_cast<float>(cos_f64(position)));
  }
  EXPECT_LE(tables.num_bytes(), size_t{65} << 20);
}

TEST(CpuRowOps, AreNearDoubleAndLikeTheScalarFunctions) {
  std::vector<float> x = random_floats(1003, 13, 4), up = random_floats(1003, 14), y(x.size());
  const int64_t n = static_cast<int64_t>(x.size());
  const RowOps& ops = row_ops(best_isa());
  const auto check = [&](auto f, double tolerance) {
    for (size_t i = 0; i < x.size(); ++i) {
      const double want = f(static_cast<double>(x[i]), static_cast<double>(up[i]));
      EXPECT_NEAR(static_cast<double>(y[i]), want, tolerance * (1 + std::fabs(want))) << x[i];
    }
  };
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  const auto gelu = [](double v) {
    return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
  };
  ops.silu(y.data(), x.data(), n);
  check([&](double v, double) { return silu(v); }, 4e-7);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], x[i] / (1.0f + exp_f32(0.0f - x[i])));
  ops.silu_mul(y.data(), x.data(), up.data(), n);
  check([&](double v, double u) { return silu(v) * u; }, 1e-6);
  ops.gelu_tanh(y.data(), x.data(), n);
  check([&](double v, double) { return gelu(v); }, 1e-6);
  ops.gelu_tanh_mul(y.data(), x.data(), up.data(), n);
  check([&](double v, double u) { return gelu(v) * u; }, 2e-6);
  ops.softcap(y.data(), x.data(), n, 3);
  check([&](double v, double) { return 3 * std::tanh(v / 3); }, 4e-7);
  for (size_t i = 0; i < x.size(); ++i) EXPECT_EQ(y[i], 3.0f * tanh_f32(x[i] / 3.0f));
}

TEST(CpuRowOps, BitsDependOnTheValueOnly) {
  // Every size of exponent, both signs, the edges of exp and tanh, and what is no number.
  std::vector<float> x = random_floats(4000, 15);
  for (size_t i = 0; i < x.size(); ++i) x[i] = std::ldexp(x[i], static_cast<int>(i % 160) - 80);
  for (float special : {0.0f, -0.0f, 87.0f, -87.0f, 88.72284f, 88.8f, -88.8f, 0.625f, 0.62499994f,
                        kInf, -kInf, kNan, 1e-40f, 3e38f})
    x.push_back(special);
  const std::vector<float> up = random_floats(x.size(), 16);
  const int64_t n = static_cast<int64_t>(x.size());
  const auto run = [&](const RowOps& ops, int which, float* y, const float* a, const float* b,
                       int64_t count) {
    switch (which) {
      case 0:
        return ops.silu(y, a, count);
      case 1:
        return ops.gelu_tanh(y, a, count);
      case 2:
        return ops.silu_mul(y, a, b, count);
      case 3:
        return ops.gelu_tanh_mul(y, a, b, count);
      default:
        return ops.softcap(y, a, count, 30);
    }
  };
  for (int which = 0; which < 5; ++which) {
    std::vector<float> y(x.size());
    run(row_ops(Isa::kPortable), which, y.data(), x.data(), up.data(), n);
    for (Isa isa : testable_isas()) {
      std::vector<float> whole(x.size()), pieces(x.size());
      run(row_ops(isa), which, whole.data(), x.data(), up.data(), n);
      EXPECT_TRUE(same_bits(y, whole)) << which << " " << isa_name(isa);
      int64_t size = 1;
      for (int64_t i = 0; i < n; i += size, size = size % 33 + 1)
        run(row_ops(isa), which, &pieces[static_cast<size_t>(i)], &x[static_cast<size_t>(i)],
            &up[static_cast<size_t>(i)], std::min(size, n - i));
      EXPECT_TRUE(same_bits(y, pieces)) << which << " " << isa_name(isa);
    }
  }
}

TEST(CpuIsa, ForcedChoices) {
  EXPECT_TRUE(isa_available(Isa::kPortable));
  EXPECT_EQ(choose_isa("portable").value().isa, Isa::kPortable);
  const Result<IsaChoice> unknown = choose_isa("sse9");
  ASSERT_FALSE(unknown.ok());
  EXPECT_EQ(unknown.error().code, ErrorCode::kInvalidArgument);
  EXPECT_NE(unknown.error().message.find("portable avx2"), std::string::npos);
  for (Isa isa : all_isas()) {
    const Result<IsaChoice> choice = choose_isa(isa_name(isa));
    EXPECT_EQ(choice.ok(), isa_available(isa));
    if (!choice.ok()) {
      EXPECT_EQ(choice.error().code, ErrorCode::kUnsupported);
      EXPECT_NE(choice.error().message.find("lacks"), std::string::npos);
    }
  }
  const IsaChoice best = choose_isa("").value();
  EXPECT_TRUE(isa_available(best.isa));
  EXPECT_NE(best.why.find("best of portable"), std::string::npos);
}

}  // namespace
}  // namespace invar::cpu
